"""Reads through a memory mapping: views without a copy, and the kernel's read-ahead. A cut file is refused, not a bare signal."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np

from strata_recipes.files.aligned import unmap
from strata_recipes.files.fault import Guard
from strata_recipes.files.residency import is_told, resident_bytes
from strata_recipes.files.source import Bytes, Counters, FileHandle, Identity, check_range

# One WILLNEED reads no further than the device's read-ahead window, so that a long range is asked for in steps of it.
READ_AHEAD_STEP = 128 << 10


class MappedFile:
    """An ExpertFile over a read-only mapping of the whole file.

    Each access first checks the file's size; a fault after that check (the file cut under a view, a drive error) ends the
    process with one sentence and exit code 3.
    """

    def __init__(self, path: Path, size: int, counters: Counters | None = None) -> None:
        self.path = path
        self.size = size
        self.counters = counters or Counters()  # those of the mapping that this one follows
        self._handle = FileHandle(path, size)
        self._told = is_told(path, self._handle.number)
        try:
            self._map = mmap.mmap(self._handle.number, size, access=mmap.ACCESS_READ) if size else None
        except BaseException:
            self._handle.close()
            raise
        self._bytes: Bytes = np.frombuffer(self._map, np.uint8) if self._map is not None else np.zeros(0, np.uint8)
        sentence = f"{path}: a read of its mapping failed, the file was cut or its drive has an error: check the file, then start again"
        self._guard = Guard(self._bytes.ctypes.data, size, sentence)

    @property
    def identity(self) -> Identity:
        return self._handle.identity

    @property
    def address(self) -> int:
        """Of the first byte, while it is open."""
        return self._bytes.ctypes.data

    def view(self, offset: int, num_bytes: int) -> Bytes:
        """The bytes themselves, read-only; counted as read."""
        check_range(self.path, self.size, offset, num_bytes, num_bytes)
        self._handle.check_size()
        with self.counters.reading(num_bytes):
            return self._bytes[offset : offset + num_bytes]

    def read(self, offset: int, num_bytes: int, out: Bytes) -> None:
        check_range(self.path, self.size, offset, num_bytes, out.size)
        self._handle.check_size()
        with self.counters.reading(num_bytes):
            np.copyto(out[:num_bytes], self._bytes[offset : offset + num_bytes])

    def cached_share(self, offset: int, num_bytes: int) -> float | None:
        """Share of a range that the page cache holds, 0 to 1; None where the system does not tell. Nothing is read."""
        if not self._told:
            return None
        return resident_bytes(self._bytes.ctypes.data, offset, num_bytes) / num_bytes if num_bytes else 1.0

    def will_need(self, offset: int, num_bytes: int) -> None:
        """Asks the kernel to read a range ahead, in whole pages; nothing where it cannot be asked."""
        if self._map is None or not hasattr(mmap, "MADV_WILLNEED"):
            return
        first = offset // mmap.PAGESIZE * mmap.PAGESIZE
        for start in range(first, offset + num_bytes, READ_AHEAD_STEP):
            self._map.madvise(mmap.MADV_WILLNEED, start, min(READ_AHEAD_STEP, offset + num_bytes - start))

    def drop(self, offset: int, num_bytes: int) -> None:
        """Takes the whole pages of a range out of this process and out of the page cache, where the system can."""
        first, stop = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE, (offset + num_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if self._map is None or first >= stop or not hasattr(mmap, "MADV_DONTNEED"):
            return
        self._map.madvise(mmap.MADV_DONTNEED, first, stop - first)
        os.posix_fadvise(self._handle.number, first, stop - first, os.POSIX_FADV_DONTNEED)

    def check(self) -> None:
        self._handle.check()

    def close(self) -> None:
        """Unmaps and closes. A view that is still held (by a traceback, say) keeps the mapping until it goes."""
        self._guard.close()
        self._bytes = np.zeros(0, np.uint8)
        unmap(self._map)
        self._map = None
        self._handle.close()
