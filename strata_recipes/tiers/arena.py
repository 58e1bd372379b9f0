"""Places for expert blobs in our own memory, each of its blob's size: no padding to the largest. Does not know whose blobs."""

from __future__ import annotations

from collections.abc import Sequence

from strata_recipes.files.aligned import AlignedBuffer
from strata_recipes.files.source import Bytes

SLICE_BYTES = 1 << 30  # one mapping: page-locking a larger one cannot be interrupted
POISON = 0xFF  # bytes of freed memory, where asked for: a use after it shows


class Arena:
    """`sizes[i]` bytes at place i, every place on `alignment`, in mappings of at most `slice_bytes`."""

    def __init__(self, sizes: Sequence[int], alignment: int, *, slice_bytes: int = SLICE_BYTES, poison: bool = False) -> None:
        self._sizes = sizes
        self._poison = poison
        self._slices: list[AlignedBuffer] = []
        self._places: list[tuple[int, int]] = []  # slice, offset in it
        try:
            for first, last in _cuts(sizes, alignment, slice_bytes):
                self._add_slice(sizes[first:last], alignment)
        except BaseException:
            self.close()
            raise

    def place(self, index: int) -> Bytes:
        """The writable bytes of one place."""
        number, offset = self._places[index]
        return self._slices[number].bytes[offset : offset + self._sizes[index]]

    @property
    def slices(self) -> list[Bytes]:
        """Each mapping, whole."""
        return [part.bytes for part in self._slices]

    def close(self) -> None:
        for part in self._slices:
            if self._poison:
                part.bytes[:] = POISON
            part.close()
        self._slices, self._places = [], []

    def _add_slice(self, sizes: Sequence[int], alignment: int) -> None:
        offset = 0
        for size in sizes:
            self._places.append((len(self._slices), offset))
            offset += _rounded(size, alignment)
        self._slices.append(AlignedBuffer(offset, alignment))


def _rounded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _cuts(sizes: Sequence[int], alignment: int, slice_bytes: int) -> list[tuple[int, int]]:
    """Runs of places that share a mapping; a blob larger than a slice gets its own."""
    cuts, first, held = [], 0, 0
    for index, size in enumerate(sizes):
        if held and held + _rounded(size, alignment) > slice_bytes:
            cuts.append((first, index))
            first, held = index, 0
        held += _rounded(size, alignment)
    return [*cuts, (first, len(sizes))] if held else cuts
