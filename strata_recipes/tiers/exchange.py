"""Experts that change places: a hot one takes the slot of a cold one. Knows heat and room; not who counted, nor when it is time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strata_recipes.files.source import Bytes
from strata_recipes.tiers.blobs import FilledTier, Pair
from strata_recipes.tiers.lookup import ExpertTiers

MARGIN = 1.0  # choices by which the one that comes is hotter: a single one is chance


@dataclass(frozen=True)
class Swap:
    """`incoming` has no slot, `outgoing` gives it its own."""

    incoming: Pair
    outgoing: Pair


class Places:
    """Bytes of room of each expert's place, [layers, experts] a memory, 0 where it has none; blob bytes [layers]."""

    def __init__(self, tiers: ExpertTiers) -> None:
        g = tiers.index.geometry
        self.blob_bytes = np.array([at.blob_bytes for at in tiers.index.layers], np.int64)
        self.vram, self.ram = (_rooms(tier, (g.num_layers, g.num_experts)) for tier in (tiers.vram, tiers.ram))

    def change(self, swap: Swap) -> None:
        """As `Exchange.swap` does it."""
        came, went = swap.incoming, swap.outgoing
        self.vram[came], self.vram[went] = self.vram[went], 0
        if self.ram[came] and not self.ram[went]:
            self.ram[went], self.ram[came] = self.ram[came], 0


def ranks(order: Sequence[Pair], shape: tuple[int, int]) -> NDArray[np.int64]:
    """The place of each expert in the order that the run began with, [layers, experts]: who is hotter where counts are alike."""
    found = np.empty(shape, np.int64)
    layers, experts = np.array(order, np.int64).T
    found[layers, experts] = np.arange(len(order))
    return found


def hotter(heat: NDArray[np.float64], rank: NDArray[np.int64], places: Places, most: int) -> Iterator[Swap]:
    """At most `most` swaps: the hottest without a slot, each with the coldest whose slot it fits.

    And whose own blob fits the place that the other leaves in RAM. `places` may change with each swap once it is taken.
    """
    slots = _Slots(heat, rank, places)
    hopeless: set[tuple[int, int]] = set()  # sizes that a hotter one found no slot for
    for came in _hot(heat, rank, places, slots.coldest, most):
        sizes = int(places.blob_bytes[came[0]]), int(places.ram[came])
        if sizes in hopeless:
            continue
        went = slots.take(heat[came] - MARGIN, *sizes)
        if went is None:
            hopeless.add(sizes)
            continue
        yield Swap(came, went)
        most -= 1
        if not most:
            return


class _Slots:
    """The experts that have one, coldest first: each is taken once."""

    def __init__(self, heat: NDArray[np.float64], rank: NDArray[np.int64], places: Places) -> None:
        held = np.flatnonzero(places.vram)
        cold = held[np.lexsort((-rank.ravel()[held], heat.ravel()[held]))]
        self._layers, self._experts = np.divmod(cold, heat.shape[1])
        self._heat, self._room, self._bytes = heat.ravel()[cold], places.vram.ravel()[cold], places.blob_bytes[self._layers]
        self._stays = places.ram.ravel()[cold] > 0
        self._free = np.ones(cold.size, bool)
        self._first = 0  # that may be free

    @property
    def coldest(self) -> float:
        return float(self._heat[0]) if self._heat.size else np.inf

    def take(self, below: float, num_bytes: int, left: int) -> Pair | None:
        """The coldest below this heat with room for so many bytes, whose own fit what is `left` in RAM (0: it is left to the file)."""
        while self._first < self._free.size and not self._free[self._first]:
            self._first += 1
        for at in range(self._first, self._free.size):
            if self._heat[at] >= below:
                return None
            fits = self._room[at] >= num_bytes and (not left or self._stays[at] or self._bytes[at] <= left)
            if fits and self._free[at]:
                self._free[at] = False
                return int(self._layers[at]), int(self._experts[at])
        return None


class Exchange:
    """`spare`: memory of the largest blob, where RAM holds blobs; one blob at a time goes through it, so that no budget is passed."""

    def __init__(self, tiers: ExpertTiers, spare: Bytes | None) -> None:
        self._tiers = tiers
        self._spare = spare

    def swap(self, swap: Swap) -> None:
        """The blob that leaves VRAM takes the place in RAM of the one that came in, or is left to the file where that came from there.

        Where RAM holds both anyway nothing goes down. A read that fails leaves all as it was.
        """
        tiers, came, went = self._tiers, swap.incoming, swap.outgoing
        if came not in tiers.ram:
            with tiers.from_file(*came) as blob:
                tiers.vram.replace(went, came, blob)
        elif went in tiers.ram:
            self._up(swap)
        else:
            assert self._spare is not None, "the plan counts a buffer where RAM holds blobs"
            spare = self._spare[: tiers.index.layers[went[0]].blob_bytes]
            tiers.vram.read(*went, spare)
            self._up(swap)
            tiers.ram.replace(came, went, spare)
        tiers.moved(came, went)

    def _up(self, swap: Swap) -> None:
        blob = self._tiers.ram.blob(*swap.incoming)
        with self._tiers.up(blob.size):
            self._tiers.vram.replace(swap.outgoing, swap.incoming, blob)


def _hot(heat: NDArray[np.float64], rank: NDArray[np.int64], places: Places, coldest: float, most: int) -> Iterator[Pair]:
    """Without a slot and hotter than the coldest that has one, hottest first. Few are asked for: the rest is sorted when it is."""
    values, ranked = heat.ravel(), rank.ravel()
    found = np.flatnonzero((places.vram.ravel() == 0) & (values > coldest + MARGIN))
    parts = [found]
    if found.size > (few := 8 * most):
        least = np.partition(values[found], -few)[-few]
        parts = [found[values[found] >= least], found[values[found] < least]]
    for part in parts:
        for at in part[np.lexsort((ranked[part], -values[part]))].tolist():
            yield divmod(at, heat.shape[1])


def _rooms(tier: FilledTier, shape: tuple[int, int]) -> NDArray[np.int64]:
    found = np.zeros(shape, np.int64)
    for layer, expert in tier.pairs():
        found[layer, expert] = tier.room(layer, expert)
    return found
