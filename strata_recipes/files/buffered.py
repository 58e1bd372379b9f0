"""Reads through the page cache, by position, into the caller's buffer. Does not know mappings or direct reads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from strata_recipes.files.source import Bytes, Counters, FileHandle, Identity, check_range, ended_early, read_failed

READ_LIMIT = (1 << 31) - 4096  # Linux reads no more than 2 GiB - 4 KiB in one call
ReadAt = Callable[[int, Sequence[memoryview], int], int]  # as os.preadv: (handle, buffers, offset) -> bytes read


class BufferedFile:
    """An ExpertFile over positional reads; several threads may read at once.

    `apart`: of ranges that lie apart. Linux then reads each whole and no byte beside it; else it guesses from what the page cache
    holds before a range what will be read after it, which was seen to be half as much again.
    """

    def __init__(
        self, path: Path, size: int, *, read_at: ReadAt | None = None, apart: bool = False, counters: Counters | None = None
    ) -> None:
        self.path = path
        self.size = size
        self.counters = counters or Counters()
        self._handle = FileHandle(path, size)
        if apart and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._handle.number, 0, 0, os.POSIX_FADV_RANDOM)
        self._read_at = read_at or _system_read_at()

    def read(self, offset: int, num_bytes: int, out: Bytes) -> None:
        check_range(self.path, self.size, offset, num_bytes, out.size)
        self._handle.check_size()
        with self.counters.reading(num_bytes):
            read_all(self._read_at, self._handle.number, self.path, offset, out[:num_bytes])

    @property
    def identity(self) -> Identity:
        return self._handle.identity

    def check(self) -> None:
        self._handle.check()

    def close(self) -> None:
        self._handle.close()


def _system_read_at() -> ReadAt:
    if sys.platform == "win32":
        from strata_recipes.files.windows_api import read_at

        return read_at
    return os.preadv


def read_all(read_at: ReadAt, number: int, path: Path, offset: int, out: Bytes) -> None:
    """Fills `out`, continuing short reads; an interrupted call is repeated."""
    view, done = out.data, 0
    while done < len(view):
        try:
            got = read_at(number, [view[done : done + READ_LIMIT]], offset + done)
        except InterruptedError:
            continue
        except OSError as error:
            raise read_failed(path, offset + done, len(view) - done, error) from error
        if got == 0:
            raise ended_early(path, offset, len(view), done)
        done += got
