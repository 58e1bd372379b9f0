"""Where dense tensors lie on a card: each layer's in one slab, the model's own in another. Sums and sizes; opens nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from strata_recipes.pack.index import PackIndex, Tensor
from strata_recipes.pack.layout import TOKEN_EMBEDDING

PART_ALIGNMENT = 256  # bytes; what the kernels read at once divides it


@dataclass(frozen=True)
class Place:
    """A tensor's bytes in its slab: as stored, or `widened` to float32 values."""

    name: str
    offset: int
    num_bytes: int
    widened: bool


@dataclass(frozen=True)
class Slab:
    """The dense tensors of one layer, or of none, side by side."""

    places: tuple[Place, ...]
    num_bytes: int  # a multiple of the alignment


def slabs(pack: PackIndex) -> tuple[Slab, ...]:
    """One slab a layer, then the model's own (the head and the last mix of streams); the token embedding is in none."""
    layers: list[list[Tensor]] = [[] for _ in range(pack.geometry.num_layers + 1)]
    for tensor in pack.dense:
        if tensor.name != TOKEN_EMBEDDING:
            kind, number, *_ = tensor.name.split(".")
            layers[int(number) if kind == "blk" else -1].append(tensor)
    return tuple(map(_slab, layers))


def is_widened(tensor: Tensor) -> bool:
    """Whether a card computes with its float32 values; the others are matrices, dequantized at each use."""
    return len(tensor.shape) == 1 or tensor.name.endswith("conv1d.weight")


def slab_bytes(pack: PackIndex) -> int:
    """All slabs together."""
    return sum(slab.num_bytes for slab in slabs(pack))


def streaming_bytes(pack: PackIndex) -> int:
    """What of them is in VRAM while they are streamed: two places for a layer's, and the model's own."""
    *layers, own = slabs(pack)
    return 2 * max(slab.num_bytes for slab in layers) + own.num_bytes


def layer_slab_bytes(pack: PackIndex) -> int:
    """The layers' slabs: what goes up for one pass."""
    return sum(slab.num_bytes for slab in slabs(pack)[:-1])


def _slab(tensors: Iterable[Tensor]) -> Slab:
    places, end = [], 0
    for tensor in tensors:
        widened = is_widened(tensor)
        size = math.prod(tensor.shape) * 4 if widened else tensor.num_bytes
        places.append(Place(tensor.name, end, size, widened))
        end += -(-size // PART_ALIGNMENT) * PART_ALIGNMENT
    return Slab(tuple(places), end)
