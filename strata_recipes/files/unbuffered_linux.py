"""Direct reads (O_DIRECT) that leave the page cache alone. Does not know mappings, nor what the bytes mean."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from strata_recipes.errors import FileError
from strata_recipes.files.aligned import AlignedBuffer
from strata_recipes.files.buffered import READ_LIMIT, BufferedFile, ReadAt
from strata_recipes.files.source import Bytes, Counters, FileHandle, Identity, check_range, ended_early, read_failed

BOUNCE_BYTES = 1 << 20  # one window of a read whose ends or buffer are not aligned
_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP, errno.EIO)  # the direct path may refuse what the buffered one can do
_CANDIDATES = (4096, 16384, 65536)  # alignments to try where the kernel does not tell


class DirectFile:
    """An ExpertFile past the page cache, from any thread.

    A range that the direct path refuses is read once through the page cache: the same bytes, told once through `note`.
    `read_at` and `alignment` stand in for the system in tests.
    """

    def __init__(
        self,
        path: Path,
        size: int,
        *,
        note: Callable[[str], None] | None = None,
        read_at: ReadAt | None = None,
        alignment: int | None = None,
    ) -> None:
        self.path = path
        self.size = size
        self.counters = Counters()
        self.refused: str | None = None
        self._note = note
        self._lock = threading.Lock()
        self._read_at: ReadAt = read_at or os.preadv
        self._local = threading.local()
        self._buffered = BufferedFile(path, size, read_at=read_at)
        self._direct: FileHandle | None = None
        try:
            self._direct = self._open_direct()
            self.alignment = alignment or (direct_alignment(path, self._direct.number, self._read_at) if self._direct else 0)
        except FileError:
            self.close()
            raise
        if self._direct and not self.alignment:
            self._tell("its file system does no direct reads")

    def read(self, offset: int, num_bytes: int, out: Bytes) -> None:
        check_range(self.path, self.size, offset, num_bytes, out.size)
        with self.counters.reading(num_bytes):
            if self._direct is None or not self.alignment:
                self.counters.fell_back()
                self._buffered.read(offset, num_bytes, out)
            elif (offset | num_bytes | out.ctypes.data) % self.alignment == 0:
                self._fill(offset, out[:num_bytes])
            else:
                self._bounce(offset, out[:num_bytes])

    @property
    def identity(self) -> Identity:
        return self._buffered.identity

    def check(self) -> None:
        self._buffered.check()

    def close(self) -> None:
        if self._direct is not None:
            self._direct.close()
        self._local = threading.local()  # the bounce windows of all threads
        self._buffered.close()

    def _open_direct(self) -> FileHandle | None:
        try:
            return FileHandle(self.path, self.size, os.O_DIRECT)
        except FileError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in _REFUSED:
                self._tell(f"opening it so failed with {error.__cause__.strerror}")
                return None
            raise

    def _bounce(self, offset: int, out: Bytes) -> None:
        """Reads aligned windows round the range into this thread's own buffer, and copies the wanted bytes out."""
        window, done = self._window(), 0
        while done < out.size:
            start = (offset + done) // self.alignment * self.alignment
            skip = offset + done - start
            wanted = min(window.size, -(-(skip + out.size - done) // self.alignment) * self.alignment)
            inside = min(wanted, self.size - start)  # the last window may pass the end of the file
            self._fill(start, window[:wanted], inside)
            part = min(out.size - done, inside - skip)
            np.copyto(out[done : done + part], window[skip : skip + part])
            done += part

    def _fill(self, offset: int, out: Bytes, needed: int | None = None) -> None:
        """Direct reads into an aligned buffer until `needed` bytes are there; a short read goes on from the last whole unit."""
        needed = out.size if needed is None else needed
        view, done = out.data, 0
        while done < needed:
            try:
                got = self._read_at(self._number(), [view[done : done + READ_LIMIT]], offset + done)
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno not in _REFUSED:
                    raise read_failed(self.path, offset + done, needed - done, error) from error
                self._again_buffered(offset + done, out[done:needed], error.strerror or str(error))
                return
            if got == 0:
                raise ended_early(self.path, offset, needed, done)
            if done + got < needed and got < self.alignment:
                self._again_buffered(offset + done, out[done:needed], f"a read gave {got} bytes, less than one unit of {self.alignment}")
                return
            done += got if done + got >= needed else got // self.alignment * self.alignment

    def _again_buffered(self, offset: int, out: Bytes, reason: str) -> None:
        self._tell(f"{out.size} bytes at offset {offset}: {reason}")
        self.counters.fell_back()
        self._buffered.read(offset, out.size, out)

    def _tell(self, reason: str) -> None:
        """The first refusal is told, the others are counted."""
        with self._lock:
            note, self._note = self._note, None
            self.refused = self.refused or reason
        if note:
            note(f"{self.path}: a direct read was refused ({reason}); such ranges are read through the page cache, with the same bytes")

    def _number(self) -> int:
        assert self._direct is not None
        return self._direct.number

    def _window(self) -> Bytes:
        if not hasattr(self._local, "window"):
            self._local.window = AlignedBuffer(max(BOUNCE_BYTES, self.alignment), self.alignment)
        window: Bytes = self._local.window.bytes
        return window


def direct_alignment(path: Path, number: int, read_at: ReadAt) -> int:
    """Bytes that offset, length and buffer of a direct read must be multiples of; 0 where the file does none.

    Asked of the kernel (statx); where it does not tell, the smallest that a read accepts.
    """
    told = _statx_alignment(path)
    return _probed_alignment(number, read_at) if told is None else told


def _statx_alignment(path: Path) -> int | None:
    """The larger of the memory and the offset alignment, never under 512; 0: no direct reads; None: not told."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "statx"):
        return None
    found = (ctypes.c_uint32 * 64)()  # struct statx: the mask is word 0, the two alignments are words 38 and 39
    at_cwd, ask_alignment = -100, 0x2000
    if libc.statx(at_cwd, os.fsencode(path), 0, ask_alignment, found) or not found[0] & ask_alignment:
        return None
    memory, offset = found[38], found[39]
    return max(memory, offset, 512) if memory and offset else 0


def _probed_alignment(number: int, read_at: ReadAt) -> int:
    for alignment in _CANDIDATES:
        buffer = AlignedBuffer(alignment, alignment)
        try:
            read_at(number, [buffer.bytes.data], 0)
            return alignment
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
        finally:
            buffer.close()
    return 0
