"""Where experts live: the hottest in VRAM slots, the next in RAM, the rest in the file. Sums of sizes; knows no speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from strata_recipes.config.choices import ExpertsMode
from strata_recipes.config.schema import Experts
from strata_recipes.errors import PlanError
from strata_recipes.pack.index import PackIndex
from strata_recipes.units import gib, mib

BUDGET_SHARES = (0.75, 0.5, 0.25)  # of the experts that no slot holds: what auto tries beside all that RAM holds


@dataclass(frozen=True)
class Room:
    """Bytes left for experts, and what VRAM bytes do to RAM: a slot without a GPU lies in RAM."""

    vram_bytes: int
    ram_bytes: int
    gpu: bool
    slots_in_ram: bool  # no GPU, or VRAM stands in RAM on this PC


@dataclass(frozen=True)
class Placement:
    """The order cut in three: [0, vram_slots) in VRAM, [.., +ram_blobs) in RAM, the rest in the file."""

    mode: str
    vram_slots: int
    ram_blobs: int
    file_blobs: int
    ram_start: int  # RAM holds the order's blobs [ram_start, vram_slots + ram_blobs): from 0 when it holds the slots' blobs too
    vram_bytes: int
    ram_bytes: int
    file_bytes: int


class Sizes:
    """Running sums of blob sizes along the order, each blob at its own layer's size."""

    def __init__(self, pack: PackIndex, order: Sequence[tuple[int, int]]) -> None:
        blob = [layer.blob_bytes for layer in pack.layers]
        self._sums: npt.NDArray[np.int64] = np.fromiter(accumulate((blob[la] for la, _ in order), initial=0), np.int64, len(order) + 1)

    @property
    def count(self) -> int:
        return len(self._sums) - 1

    def between(self, start: int, stop: int) -> int:
        """Bytes of the order's blobs start <= i < stop."""
        return int(self._sums[stop] - self._sums[start])

    def fitting(self, start: int, num_bytes: int) -> int:
        """How many blobs from `start` on fit in `num_bytes`."""
        if num_bytes < 0:
            return 0
        return int(np.searchsorted(self._sums, self._sums[start] + np.int64(num_bytes), side="right")) - 1 - start


def placements(asked: Experts, sizes: Sizes, room: Room) -> list[Placement]:
    """Every placement that the config allows and the room holds; PlanError where a stated one does not fit."""
    slots = _slots(asked, sizes, room)
    ram = room.ram_bytes - (sizes.between(0, slots) if room.slots_in_ram else 0)
    if ram < 0:
        raise PlanError(
            f"ram is short by {mib(-ram)} for {slots:,} slots of {gib(sizes.between(0, slots))}, which lie in RAM on a PC without a GPU: "
            f"lower experts.slots or hardware.gpu.vram"
        )
    ram = _within_budget(asked, ram)
    if asked.mode is ExpertsMode.auto:
        return _automatic(sizes, slots, ram)
    return [_stated(asked.mode, sizes, slots, ram)]


def _slots(asked: Experts, sizes: Sizes, room: Room) -> int:
    if not isinstance(asked.slots, int):
        return sizes.fitting(0, room.vram_bytes) if room.gpu else 0
    if room.gpu and asked.slots > (most := sizes.fitting(0, room.vram_bytes)):
        short = sizes.between(0, asked.slots) - room.vram_bytes
        raise PlanError(
            f"vram is short by {mib(short)} for experts.slots={asked.slots}: {most:,} slots fit, use that or experts.slots=auto"
        )
    return asked.slots


def _within_budget(asked: Experts, ram: int) -> int:
    if asked.ram_budget is None:
        return ram
    if asked.ram_budget > ram:
        raise PlanError(
            f"ram is short by {mib(asked.ram_budget - ram)} for experts.ram_budget={gib(asked.ram_budget)}: "
            f"{gib(ram)} are left for experts, lower experts.ram_budget or hardware.headroom"
        )
    return asked.ram_budget


def _automatic(sizes: Sizes, slots: int, ram: int) -> list[Placement]:
    found = []
    if slots and sizes.between(0, sizes.count) <= ram:
        found.append(_placement("full_arena", sizes, slots, sizes.count - slots, 0))
    if sizes.between(slots, sizes.count) <= ram:
        found.append(_placement("resident", sizes, slots, sizes.count - slots, slots))
    # Fewer experts in RAM are a shorter start, and leave page cache for the file tier: which is better depends on both. Shares of the
    # experts, not of the RAM, so that a PC with more RAM has every choice of one with less.
    rest = sizes.between(slots, sizes.count)
    counts = {sizes.fitting(slots, min(ram, int(rest * share))) for share in (1.0, *BUDGET_SHARES)} - {0, sizes.count - slots}
    found += [_placement("budget", sizes, slots, count, slots) for count in sorted(counts, reverse=True)]
    if slots < sizes.count:  # with everything in VRAM mapped and resident are one
        found.append(_placement("mapped", sizes, slots, 0, slots))
    return found


def _stated(mode: ExpertsMode, sizes: Sizes, slots: int, ram: int) -> Placement:
    if mode is ExpertsMode.mapped:
        return _placement("mapped", sizes, slots, 0, slots)
    if mode is ExpertsMode.budget:
        return _placement("budget", sizes, slots, sizes.fitting(slots, ram), slots)
    start = 0 if mode is ExpertsMode.full_arena else slots
    need = sizes.between(start, sizes.count)
    if need > ram:
        what = "all experts" if start == 0 else "the experts that no slot holds"
        raise PlanError(
            f"ram is short by {mib(need - ram)} for experts.mode={mode.value}: {what} take {gib(need)} and {gib(ram)} are left, "
            f"use experts=budget or experts=mapped"
        )
    return _placement(mode.value, sizes, slots, sizes.count - slots, start)


def _placement(mode: str, sizes: Sizes, slots: int, ram_blobs: int, ram_start: int) -> Placement:
    stop = slots + ram_blobs
    ram_bytes = sizes.between(min(ram_start, stop), stop)
    return Placement(
        mode, slots, ram_blobs, sizes.count - stop, ram_start, sizes.between(0, slots), ram_bytes, sizes.between(stop, sizes.count)
    )
