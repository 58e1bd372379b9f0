"""Room on a card for the blobs that a layer's rows chose, and their way there from page-locked RAM, in two parts. Knows no graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from strata_recipes.pack.index import LayerExperts, PackIndex
from strata_recipes.plan.budget import max_stride

ALIGNMENT = 16  # of what goes up at once


def gather_room(index: PackIndex, rows: int, idle: Tensor) -> Tensor:
    """uint8 [R * k, stride]: what steps of up to `rows` rows choose of a layer, in `idle` memory of the card if that is enough."""
    shape = rows * index.geometry.top_k, max_stride(index)
    size = shape[0] * shape[1]
    memory = idle if size <= idle.numel() else torch.empty(size, dtype=torch.uint8, device=idle.device)
    return memory[:size].view(shape)


class Gathered:
    """`addresses` int64 [R * k]: where the products find them: in their slots, or here. `near` uint8 [layers, experts]: who has a slot."""

    def __init__(self, ops: Any, layers: tuple[LayerExperts, ...], near: Tensor, room: Tensor) -> None:
        self._ops, self._layers, self._near = ops, layers, near
        self._room = room
        self.addresses = torch.zeros(room.shape[0], dtype=torch.int64, device=near.device)

    def inputs(self, layer: int, sources: Tensor, chosen: Tensor | None, stream: int) -> None:
        """Gate and up of blobs at `sources` int64 [R * k], which are those of `chosen` int32 [R * k]; None: none of them has a slot."""
        self._gather(layer, sources, chosen, 0, min(self._split(layer), self._layers[layer].blob_bytes), stream)

    def outputs(self, layer: int, sources: Tensor, chosen: Tensor | None, stream: int) -> None:
        """Down."""
        first = self._split(layer)
        self._gather(layer, sources, chosen, first, max(0, self._layers[layer].blob_bytes - first), stream)

    def _split(self, layer: int) -> int:
        """Where the second part begins: a few bytes into down, so that both start at whole units."""
        at = self._layers[layer]
        return -(-(at.gate_bytes + at.up_bytes) // ALIGNMENT) * ALIGNMENT

    def _gather(self, layer: int, sources: Tensor, chosen: Tensor | None, first: int, num_bytes: int, stream: int) -> None:
        if num_bytes == 0:
            return
        known = (None, None) if chosen is None else (chosen, self._near[layer])
        self._ops.gather_blobs(sources, *known, self._room, self.addresses, first, num_bytes, stream)
