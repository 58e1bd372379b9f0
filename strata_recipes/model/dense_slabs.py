"""Dense tensors on a card: slabs in one piece of its memory, filled from the pack. Knows no layer's arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from strata_recipes.model.widen import widen
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.dense import Place, Slab, slabs


class DensePack(Protocol):
    """What is read of a pack."""

    @property
    def index(self) -> PackIndex: ...
    def dense(self, name: str) -> tuple[np.ndarray, str, tuple[int, ...]]: ...


class Dense(Protocol):
    """Where a card has its dense tensors, by phase."""

    @property
    def placed(self) -> Mapping[str, Tensor]:
        """Every tensor by name, uint8, where it is in this phase."""

    def moves(self, reply: bool) -> bool:
        """Whether they are elsewhere in that phase; if so nothing may hold `placed` when `move` is called."""

    def move(self) -> None:
        """To the other phase's places."""

    def use(self, layer: int) -> None:
        """What is launched next computes with this layer's tensors."""


class ResidentDense:
    """All of them in VRAM, always. One allocation: a tensor each would leave hundreds of gaps that no plan counts."""

    def __init__(self, pack: DensePack, device: torch.device) -> None:
        found = slabs(pack.index)
        memory = torch.empty(sum(slab.num_bytes for slab in found), dtype=torch.uint8, device=device)
        self.placed: Mapping[str, Tensor] = {}
        for slab, part in zip(found, side_by_side(found, memory), strict=True):
            fill(pack, slab, part)
            self.placed |= views(slab, part)

    def moves(self, reply: bool) -> bool:
        return False

    def move(self) -> None:
        raise AssertionError("they stay")

    def use(self, layer: int) -> None:
        """They are there."""


def side_by_side(found: Sequence[Slab], memory: Tensor) -> list[Tensor]:
    """One slab's bytes after the other's."""
    return list(torch.split(memory, [slab.num_bytes for slab in found]))


def fill(pack: DensePack, slab: Slab, memory: Tensor) -> None:
    """The slab's tensors into uint8 memory, host or card."""
    for place in slab.places:
        memory[place.offset : place.offset + place.num_bytes].copy_(torch.from_numpy(_bytes(pack, place)))


def views(slab: Slab, memory: Tensor) -> dict[str, Tensor]:
    """Each tensor's bytes in the slab's memory."""
    return {place.name: memory[place.offset : place.offset + place.num_bytes] for place in slab.places}


def _bytes(pack: DensePack, place: Place) -> np.ndarray:
    data, format_name, _ = pack.dense(place.name)
    return widen(data, format_name).view(np.uint8) if place.widened else np.array(data)  # torch takes no read-only memory
