"""Where an expert's bytes are now: VRAM slots, then RAM, then the file. Yields blobs; does not know what is computed with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field

import numpy as np

from strata_recipes.files.pace import Pace
from strata_recipes.files.source import Bytes
from strata_recipes.pack.index import PackIndex
from strata_recipes.tiers.blobs import BlobTier, Pair
from strata_recipes.tiers.cuda_memory import LockedSlices
from strata_recipes.tiers.cuda_slots import CudaSlots, Slot
from strata_recipes.tiers.file_tier import FileTier, MappedTier, StagedTier, Visit

Check = Callable[[int, int, Bytes], None]  # (layer, expert, blob): raises where these are not the pack's bytes


@dataclass
class TierCounters:
    """Lookups by tier over one prompt or one reply; file bytes are at stored stride."""

    vram_hits: int = 0
    ram_hits: int = 0
    file_hits: int = 0
    file_bytes: int = 0
    staged_bytes: int = 0  # payload from RAM and file: what a card's ring takes
    touched: set[tuple[int, int]] = field(default_factory=set)  # pairs of the file tier, each once


class ExpertTiers:
    """All experts of a pack, each in its tier. `file` is None where none is left to the file.

    `prompt`: how a prompt reads the file where that is not `file`'s way; it is closed with the others. `up`: the link that RAM
    blobs pass where a card's is stood in for; those of the file have passed it when they come.
    """

    def __init__(
        self,
        index: PackIndex,
        vram: BlobTier | CudaSlots,
        ram: BlobTier,
        file: FileTier | None,
        check: Check | None = None,
        prompt: StagedTier | None = None,
        up: Pace | None = None,
        locked: LockedSlices | None = None,
    ) -> None:
        self.index = index
        self.vram = vram
        self.ram = ram
        self.counters = TierCounters()
        self.prompt = prompt
        self._up = up
        self._locked = locked
        self._file = file
        self._check_blob = check
        self._moved: dict[Pair, None] = {}

    def blobs(self, layer: int, experts: Sequence[int]) -> Iterator[tuple[int, Bytes | Slot]]:
        """(expert, read-only blob) for ascending ids, in that order; a blob is valid until the next step. On a card: its slot."""
        _refuse_order(layer, experts)
        slots = self.vram.all_of(layer, experts) if isinstance(self.vram, CudaSlots) else None
        if slots is None:
            yield from self.through(layer, experts, self._visit(layer, self.in_file(layer, experts)))
        else:  # in one go: a chunk asks for hundreds of experts, and the card waits meanwhile
            self.counters.vram_hits += len(slots)
            yield from zip(experts, slots, strict=True)

    def through(self, layer: int, experts: Sequence[int], visit: Visit) -> Iterator[tuple[int, Bytes | Slot]]:
        """The same, the file's blobs out of a visit that was begun for exactly those; it ends with the iteration."""
        with closing(visit):
            for expert in experts:
                yield expert, self._blob(layer, expert, visit)

    def in_file(self, layer: int, experts: Iterable[int]) -> list[int]:
        """Those that no memory holds."""
        return [expert for expert in experts if not self._resident(layer, expert)]

    def read(self, layer: int, experts: Sequence[int], places: Sequence[Bytes]) -> None:
        """Blobs of ascending ids into places of at least their size, those of the file all at once where its tier can."""
        _refuse_order(layer, experts)
        at = dict(zip(experts, places, strict=True))
        missed = self.in_file(layer, experts)
        if missed:
            self._has_file(layer, missed).read(layer, missed, [at[expert] for expert in missed])
        for expert, place in at.items():
            if expert in missed:
                self._came(layer, expert, place[: self.index.layers[layer].blob_bytes])
            else:
                _copy(self._blob(layer, expert, _NoVisit()), place)

    def card_address(self, blob: Bytes) -> int:
        """Where a card finds a RAM blob; 0 where its slice is not page-locked, or the card does not reach it."""
        return self._locked.card_address(blob) if self._locked else 0

    def take_counters(self) -> TierCounters:
        """The counters since the last call; they start again from nothing."""
        counted, self.counters = self.counters, TierCounters()
        return counted

    def file_bytes(self, pairs: set[tuple[int, int]] | None = None) -> int:
        """Stored bytes of these file-tier pairs, or of all that no memory holds."""
        g = self.index.geometry
        if pairs is None:
            pairs = {(la, ex) for la in range(g.num_layers) for ex in range(g.num_experts) if not self._resident(la, ex)}
        return sum(self.index.layers[layer].stride for layer, _ in pairs)

    @contextmanager
    def from_file(self, layer: int, expert: int) -> Iterator[Bytes]:
        """One blob of the file, that is about to move; valid in the block. No look-up, but its bytes count as read."""
        with closing(self._visit(layer, [expert])) as visit:
            blob = visit.next_blob()
            self.counters.file_bytes += self.index.layers[layer].stride
            if self._check_blob:
                self._check_blob(layer, expert, blob)
            yield blob

    def up(self, num_bytes: int) -> AbstractContextManager[None]:
        """The link that a blob of RAM passes on its way to a slot, where one is stood in for."""
        return self._up.passing(num_bytes) if self._up else nullcontext()

    def moved(self, *pairs: Pair) -> None:
        """Records that these lie elsewhere now."""
        self._moved.update(dict.fromkeys(pairs))

    def take_moves(self) -> list[Pair]:
        """(layer, expert) of what lies elsewhere since the last call, each once: a table of addresses is to be told before it is used."""
        moved, self._moved = list(self._moved), {}
        return moved

    def address(self, layer: int, expert: int) -> int | None:
        """Where the blob is now: its slot on the card, or its place in RAM (a card reads it there if it is page-locked); None: the file."""
        if (layer, expert) in self.vram:
            blob = self.vram.blob(layer, expert)
            return blob.address if isinstance(blob, Slot) else int(blob.ctypes.data)
        return int(self.ram.place(layer, expert).ctypes.data) if (layer, expert) in self.ram else None

    def will_need(self, offset: int, num_bytes: int) -> None:
        """Has the kernel read a range of the file ahead, where experts are read through a mapping."""
        if isinstance(self._file, MappedTier):
            self._file.will_need(offset, num_bytes)

    def cached_share(self, offset: int, num_bytes: int) -> float | None:
        """Share of a range of the file in the page cache; None where experts are not read through a mapping, or it is not known."""
        return self._file.cached_share(offset, num_bytes) if isinstance(self._file, MappedTier) else None

    def check(self) -> None:
        """FileError if the file tier's file was cut, rewritten or replaced."""
        if self._file:
            self._file.check()

    def close(self) -> None:
        try:
            if self.prompt and self.prompt is not self._file:
                self.prompt.close()  # first: its threads read the mapping of the other
            if self._file:
                self._file.close()
        finally:
            with ExitStack() as last:  # each is closed, whatever the others say
                last.callback(self.ram.close)
                if self._locked:
                    last.callback(self._locked.close)  # before its memory goes
                last.callback(self.vram.close)

    def _resident(self, layer: int, expert: int) -> bool:
        return (layer, expert) in self.vram or (layer, expert) in self.ram

    def _visit(self, layer: int, experts: list[int]) -> Visit:
        return self._has_file(layer, experts).visit(layer, experts) if experts else _NoVisit()

    def _has_file(self, layer: int, experts: list[int]) -> FileTier:
        if self._file is None:
            raise ValueError(f"experts {experts} of layer {layer} are in no tier")
        return self._file

    def _blob(self, layer: int, expert: int, visit: Visit) -> Bytes | Slot:
        if (layer, expert) in self.vram:
            self.counters.vram_hits += 1
            return self.vram.blob(layer, expert)
        if (layer, expert) in self.ram:
            self.counters.ram_hits += 1
            self.counters.staged_bytes += self.index.layers[layer].blob_bytes
            with self.up(self.index.layers[layer].blob_bytes):
                return self.ram.blob(layer, expert)
        return self._came(layer, expert, visit.next_blob())

    def _came(self, layer: int, expert: int, blob: Bytes) -> Bytes:
        """Counts and checks a blob of the file."""
        self.counters.file_hits += 1
        self.counters.staged_bytes += self.index.layers[layer].blob_bytes
        self.counters.file_bytes += self.index.layers[layer].stride
        self.counters.touched.add((layer, expert))
        if self._check_blob:
            self._check_blob(layer, expert, blob)
        return blob


def _refuse_order(layer: int, experts: Sequence[int]) -> None:
    if any(a >= b for a, b in zip(experts, experts[1:], strict=False)):
        raise ValueError(f"experts {list(experts)} of layer {layer} are not in ascending order")


def _copy(blob: Bytes | Slot, place: Bytes) -> None:
    assert not isinstance(blob, Slot), "what lies on the card is read there"
    np.copyto(place[: blob.size], blob)


class _NoVisit:
    """Where everything is resident."""

    def next_blob(self) -> Bytes:
        raise ValueError("a visit without experts has no blob")

    def close(self) -> None:
        """Nothing was asked for."""
