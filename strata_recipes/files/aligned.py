"""Anonymous memory of a stated alignment, for direct reads and for the tiers. Does not know what is kept in it."""

from __future__ import annotations

import mmap

import numpy as np

from strata_recipes.errors import DeviceError
from strata_recipes.files.source import Bytes


class AlignedBuffer:
    """Zeroed private memory whose first byte lies on `alignment`; given back by close, or with its last view."""

    def __init__(self, num_bytes: int, alignment: int) -> None:
        spare = alignment if alignment > mmap.PAGESIZE else 0  # a mapping starts on a page
        self._map: mmap.mmap | None = _anonymous(num_bytes + spare) if num_bytes else None
        whole = np.zeros(0, np.uint8) if self._map is None else np.frombuffer(self._map, np.uint8)
        start = -whole.ctypes.data % alignment if num_bytes else 0
        self.bytes: Bytes = whole[start : start + num_bytes]

    def close(self) -> None:
        self.bytes = np.zeros(0, np.uint8)
        unmap(self._map)
        self._map = None


def unmap(mapping: mmap.mmap | None) -> None:
    """Closes a mapping, or leaves it to its last view."""
    if mapping is None:
        return
    try:
        mapping.close()
    except BufferError:
        return  # a view still looks into it: the memory goes with that view


def _anonymous(num_bytes: int) -> mmap.mmap:
    try:
        if hasattr(mmap, "MAP_PRIVATE"):  # Python's default is shared memory, which counts and swaps differently
            return mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return mmap.mmap(-1, num_bytes)
    except OSError as error:
        raise DeviceError(
            f"the system gave no {num_bytes} bytes of memory ({error.strerror}, errno {error.errno}): free memory first"
        ) from error
