"""The expert blobs that one memory holds: where each (layer, expert) lies in its arena. Does not know how they got there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import numpy as np

from strata_recipes.files.aligned import AlignedBuffer
from strata_recipes.files.source import Bytes
from strata_recipes.schedule.startup import Copy
from strata_recipes.tiers.arena import Arena
from strata_recipes.tiers.ledger import Ledger

Pair = tuple[int, int]  # (layer, expert)


class FilledTier(Protocol):
    """One memory's blobs as a start fills them: here, or on a card."""

    num_bytes: int  # payload of all places

    def __contains__(self, pair: tuple[int, int]) -> bool: ...
    def pairs(self) -> list[tuple[int, int]]:
        """What is held, by layer, then expert."""

    def bytes(self, layer: int, expert: int) -> Bytes:
        """One blob, read back from where it lies."""

    def buffer(self, num_bytes: int, alignment: int) -> AlignedBuffer:
        """Memory for reads on their way to `write`."""

    def write(self, layer: int, expert: int, blob: Bytes) -> None:
        """One blob to its place; its source stays as it is until `flush`."""

    def flush(self) -> None:
        """Waits until all that was written is there."""

    def receive(self, layer: int, expert: int) -> AbstractContextManager[Bytes]:
        """Memory to read one blob into; it is in its place some time after the block, at the latest after `flush`."""

    def room(self, layer: int, expert: int) -> int:
        """Bytes of the place that one blob lies in: it may be smaller than its place."""

    def read(self, layer: int, expert: int, out: Bytes) -> None:
        """One blob into the first bytes of `out`, which are there when this returns."""

    def replace(self, old: Pair, new: Pair, blob: Bytes) -> None:
        """The place of `old`, which is then held no more, becomes that of `new`; its bytes are there when this returns."""

    def close(self) -> None: ...


class BlobTier:
    """Blobs by pair, at the index that the schedule gave them; the ledger is asked before anything is allocated.

    A place lies on the largest power of two up to `alignment` that divides every blob size, so that no byte is padding.
    """

    def __init__(
        self, copies: Sequence[Copy], ledger: Ledger, budget: str, name: str, *, alignment: int, slice_bytes: int | None, poison: bool
    ) -> None:
        self._index = {(copy.layer, copy.expert): copy.index for copy in copies}
        self._held = {(copy.layer, copy.expert): copy.num_bytes for copy in copies}
        sizes = [copy.num_bytes for copy in sorted(copies, key=lambda copy: copy.index)]
        self.num_bytes = sum(sizes)
        self._taken = ledger.take(budget, name, self.num_bytes)
        try:
            self._arena = Arena(sizes, math.gcd(alignment, *sizes), slice_bytes=slice_bytes or self.num_bytes, poison=poison)
        except BaseException:
            self._taken.give_back()
            raise

    def __contains__(self, pair: tuple[int, int]) -> bool:
        return pair in self._index

    def __len__(self) -> int:
        return len(self._index)

    def place(self, layer: int, expert: int) -> Bytes:
        """Where one blob goes, to be written."""
        return self._arena.place(self._index[layer, expert])[: self._held[layer, expert]]

    def blob(self, layer: int, expert: int) -> Bytes:
        """The bytes of one blob, read-only like those of every tier: a kernel then compiles for one type."""
        return read_only(self.place(layer, expert))

    def bytes(self, layer: int, expert: int) -> Bytes:
        """The same: what lies here needs no reading back."""
        return self.blob(layer, expert)

    def buffer(self, num_bytes: int, alignment: int) -> AlignedBuffer:
        """Plain memory: a copy inside RAM waits for nothing."""
        return AlignedBuffer(num_bytes, alignment)

    def write(self, layer: int, expert: int, blob: Bytes) -> None:
        """One blob to its place, at once."""
        np.copyto(self.place(layer, expert), blob)

    def flush(self) -> None:
        """Nothing is under way."""

    @contextmanager
    def receive(self, layer: int, expert: int) -> Iterator[Bytes]:
        """The place itself."""
        yield self.place(layer, expert)

    def room(self, layer: int, expert: int) -> int:
        """Bytes of its place."""
        return self._arena.place(self._index[layer, expert]).size

    def read(self, layer: int, expert: int, out: Bytes) -> None:
        """One blob, copied out."""
        place = self.place(layer, expert)
        np.copyto(out[: place.size], place)

    def replace(self, old: Pair, new: Pair, blob: Bytes) -> None:
        """`new` where `old` was. Interrupted, neither is here: nobody finds bytes that are half the one and half the other."""
        index = self._index.pop(old)
        del self._held[old]
        np.copyto(self._arena.place(index)[: blob.size], blob)
        self._index[new], self._held[new] = index, blob.size

    @property
    def slices(self) -> list[Bytes]:
        """The mappings that the places lie in."""
        return self._arena.slices

    def forget(self, layer: int, expert: int) -> None:
        """This blob did not come: its place stays, and nobody finds it."""
        del self._index[layer, expert]

    def pairs(self) -> list[tuple[int, int]]:
        """What is held, by layer, then expert."""
        return sorted(self._index)

    def close(self) -> None:
        self._index = {}
        self._arena.close()
        self._taken.give_back()


def read_only(view: Bytes) -> Bytes:
    """The view, which nobody else may hold, without the right to write."""
    view.flags.writeable = False
    return view
