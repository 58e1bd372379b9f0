"""What of a file the page cache holds, and how to make it let go. Linux; elsewhere it is not known, which is None."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from strata_recipes.errors import FileError


def cached_bytes(path: Path, ranges: Sequence[tuple[int, int]] | None = None) -> int | None:
    """Bytes of the (offset, length) ranges that lie in the page cache, counted in whole pages and cut to the range.

    None where the system does not tell. `ranges=None` is the whole file. Nothing is read.
    """
    if not sys.platform.startswith("linux"):
        return None
    with open(path, "rb") as file:
        if not is_told(path, file.fileno()):
            return None
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return 0
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapping:
            base = np.frombuffer(mapping, np.uint8)
            try:
                return sum(
                    resident_bytes(base.ctypes.data, offset, length) for offset, length in ([(0, size)] if ranges is None else ranges)
                )
            finally:
                del base  # the mapping cannot close under it


def is_told(path: Path, number: int) -> bool:
    """Whether the system tells this process what of an open file is cached. Linux calls all of it cached where a file is another user's
    and may not be written: a pack that several users share, say."""
    return sys.platform.startswith("linux") and (os.fstat(number).st_uid == os.geteuid() or os.access(path, os.W_OK))


def cached_share(path: Path, offset: int, num_bytes: int) -> float | None:
    """Share of one range that the page cache holds, 0 to 1; None where the system does not tell."""
    found = cached_bytes(path, [(offset, num_bytes)])
    return None if found is None else found / num_bytes if num_bytes else 1.0


def drop_cached(path: Path) -> bool:
    """Writes the file's dirty pages, then asks the page cache to let it go; False where it cannot be asked."""
    if not hasattr(os, "posix_fadvise"):
        return False
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(number)
    return True


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def resident_bytes(base: int, offset: int, length: int) -> int:
    """Bytes of a range of the file mapped at `base` that the page cache holds. Linux."""
    page = mmap.PAGESIZE
    first, last = offset // page * page, offset + length
    pages = -(-(last - first) // page)
    if not pages:
        return 0
    held = np.zeros(pages, np.uint8)
    if _libc().mincore(ctypes.c_void_p(base + first), ctypes.c_size_t(last - first), ctypes.c_void_p(held.ctypes.data)):
        code = ctypes.get_errno()
        raise FileError(f"mincore over {length} bytes at offset {offset} failed with {os.strerror(code)} (errno {code})")
    inside = np.full(pages, page, np.int64)
    inside[0] -= offset - first
    inside[-1] -= first + pages * page - last
    return int(inside[(held & 1) == 1].sum())
