"""Direct reads on Windows (FILE_FLAG_NO_BUFFERING, overlapped) past its file cache. Does not know mappings, nor what the bytes mean.

NTFS serializes such reads while the file is mapped or open buffered, so no buffered handle is kept; and it serializes the
reads of one handle, so every reading thread has its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from strata_recipes.errors import FileError
from strata_recipes.files import windows_api
from strata_recipes.files.buffered import BufferedFile
from strata_recipes.files.source import Bytes, Counters, FileHandle, Identity, check_range, check_same, ended_early
from strata_recipes.files.windows_api import ERROR_HANDLE_EOF, ApiError
from strata_recipes.files.windows_pieces import pieces
from strata_recipes.files.windows_reader import Api, Reader, Stopped

ALIGNMENT = 4096  # blobs start on it; a drive that reports sectors of 512 has pages of it
_REFUSED = (1, 23, 50, 87, 1117)  # invalid function, CRC, not supported, invalid parameter, I/O device: the cached way may still work
_SHORT = 0


class DirectFile:
    """An ExpertFile past the file cache, from any thread.

    A range that the direct path refuses is read once through the cache: the same bytes, told once through `note`.
    """

    def __init__(self, path: Path, size: int, *, note: Callable[[str], None] | None = None, api: Api = windows_api) -> None:
        self.path = path
        self.size = size
        self.counters = Counters()
        self.refused: str | None = None
        self._note = note
        self._api = api
        self._lock = threading.Lock()
        self._local = threading.local()
        self._readers: list[Reader] = []
        self._identity = _identity(path, size)
        self.alignment = ALIGNMENT
        try:
            self.alignment = self._first_handle()
        except FileError:
            self.close()
            raise

    def read(self, offset: int, num_bytes: int, out: Bytes) -> None:
        check_range(self.path, self.size, offset, num_bytes, out.size)
        with self.counters.reading(num_bytes):
            if not self.alignment:
                self._read_buffered(offset, out[:num_bytes])
            else:
                self._read_direct(offset, out[:num_bytes])

    @property
    def identity(self) -> Identity:
        return self._identity

    def check(self) -> None:
        """FileError if the path no longer leads to the file that was opened, unchanged."""
        check_same(self.path, self._identity, _identity(self.path, self.size))

    def close(self) -> None:
        """Closes every thread's handle. No read may be under way."""
        with self._lock:
            readers, self._readers = self._readers, []
        self._local = threading.local()
        for reader in readers:
            reader.close()

    def _first_handle(self) -> int:
        """Opens this thread's handle; the alignment of direct reads, 0 where the drive does none, which is told."""
        try:
            self.alignment = max(ALIGNMENT, self._api.sector_bytes(self.path))
            self._reader()
        except ApiError as error:
            if error.code not in _REFUSED:
                raise FileError(f"{self.path} cannot be opened for direct reads: {error}") from error
            self._tell(f"opening it so failed with {error}")
            return 0
        return self.alignment

    def _reader(self) -> Reader:
        """This thread's own."""
        if not hasattr(self._local, "reader"):
            reader = Reader(self._api, self.path, self.alignment)
            with self._lock:
                self._readers.append(reader)
            found_size = reader.file_size()
            if found_size != self.size:
                raise FileError(f"{self.path} has {found_size} bytes, the pack's index wants {self.size}: pack it again")
            self._local.reader = reader
        found: Reader = self._local.reader
        return found

    def _read_direct(self, offset: int, out: Bytes) -> None:
        try:
            self._reader().read(pieces(offset, out.size, out.ctypes.data, self.alignment), out)
        except ApiError as error:
            self._go_on(Stopped(0, error.code, f"opening it again: {error.text}"), offset, out)
        except Stopped as stopped:
            self._go_on(stopped, offset, out)

    def _go_on(self, stopped: Stopped, offset: int, out: Bytes) -> None:
        """What follows a direct read that stopped: the rest through the cache, or the error."""
        at, left = offset + stopped.done, out.size - stopped.done
        if stopped.code == ERROR_HANDLE_EOF:
            raise ended_early(self.path, offset, out.size, stopped.done) from stopped
        if stopped.code != _SHORT and stopped.code not in _REFUSED:
            raise FileError(
                f"{self.path}: reading {left} bytes at offset {at} failed with {stopped.text} (Windows error {stopped.code}): "
                "check the drive, then start again"
            ) from stopped
        self._tell(f"{left} bytes at offset {at}: {stopped.text}" + (f" (Windows error {stopped.code})" if stopped.code else ""))
        self._read_buffered(at, out[stopped.done :])

    def _read_buffered(self, offset: int, out: Bytes) -> None:
        """Opened for this one read: a buffered handle that stays open would slow every direct one."""
        self.counters.fell_back()
        buffered = BufferedFile(self.path, self.size, read_at=self._api.read_at)
        try:
            buffered.read(offset, out.size, out)
        finally:
            buffered.close()

    def _tell(self, reason: str) -> None:
        """The first refusal is told, the others are counted."""
        with self._lock:
            note, self._note = self._note, None
            self.refused = self.refused or reason
        if note:
            note(f"{self.path}: a direct read was refused ({reason}); such ranges are read through the file cache, with the same bytes")


def _identity(path: Path, size: int) -> Identity:
    """Refuses what is no regular file of that size; leaves nothing open."""
    handle = FileHandle(path, size)
    handle.close()
    return handle.identity
