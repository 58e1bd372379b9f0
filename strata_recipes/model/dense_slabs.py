"""Dense tensors on a card: all slabs in one piece of its memory, filled from the pack. Knows no layer's arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from strata_recipes.model.widen import widen
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.dense import Place, Slab, slab_bytes, slabs


class DensePack(Protocol):
    """What is read of a pack."""

    @property
    def index(self) -> PackIndex: ...
    def dense(self, name: str) -> tuple[np.ndarray, str, tuple[int, ...]]: ...


def resident(pack: DensePack, device: torch.device) -> Mapping[str, Tensor]:
    """Every tensor by name, uint8. One allocation: a tensor each would leave hundreds of gaps that no plan counts."""
    memory = torch.empty(slab_bytes(pack.index), dtype=torch.uint8, device=device)
    found: dict[str, Tensor] = {}
    start = 0
    for slab in slabs(pack.index):
        part = memory[start : start + slab.num_bytes]
        fill(pack, slab, part)
        found |= views(slab, part)
        start += slab.num_bytes
    return found


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
