"""The buffers of plan/reply_rows.py as tensors in one allocation a side, each at an address that stays. Knows no layer."""

from __future__ import annotations

import torch
from torch import Tensor

from strata_recipes.pack.index import Geometry
from strata_recipes.plan.reply_rows import ALIGNMENT, Shapes, host_bytes, host_shapes, num_bytes, reply_bytes, reply_shapes

_TYPES = {"float32": torch.float32, "int32": torch.int32, "int64": torch.int64, "int8": torch.int8}


class ReplyBuffers:
    """`at[name]`: the buffer of that name, for `rows` rows. Zeroed, as some kernels leave what a row does not have as it was."""

    def __init__(self, g: Geometry, rows: int, context: int, device: torch.device, within: ReplyBuffers | None = None) -> None:
        """`within`: buffers for at least as many rows, in whose places these lie, each in the first part of its own."""
        self.rows, self.most = rows, rows if within is None else within.most
        size = reply_bytes(g, self.most, context)
        self.memory = torch.zeros(size, dtype=torch.uint8, device=device) if within is None else within.memory
        self._at = _cut(self.memory, reply_shapes(g, rows, context), reply_shapes(g, self.most, context))

    def __getitem__(self, name: str) -> Tensor:
        return self._at[name]

    @property
    def product_rows(self) -> int:
        """Rows that a product with dense weights takes: one, or all that there is room for, whatever lies in those that are too many.
        Kernels are compiled for a number of rows, each of a dozen and more for a second: so there are two of each, not one a number."""
        return 1 if self.rows == 1 else self.most

    def for_product(self, part: Tensor) -> Tensor:
        """A buffer [rows, n], or what is cut from one's beginning, with so many rows."""
        return part.as_strided((self.product_rows, part.shape[1]), (part.shape[1], 1))


def host_memory(g: Geometry, most: int, device: torch.device) -> Tensor:
    """For the host's ends of a pass of up to `most` rows: page-locked, where the device is a card."""
    return torch.zeros(host_bytes(g, most), dtype=torch.uint8, pin_memory=device.type == "cuda")


def host_ends(g: Geometry, rows: int, memory: Tensor) -> dict[str, Tensor]:
    """These ends in host_memory; those of passes of other numbers of rows lie in the same bytes."""
    shapes = host_shapes(g, rows)
    return _cut(memory, shapes, shapes)


def _cut(memory: Tensor, shapes: Shapes, places: Shapes) -> dict[str, Tensor]:
    """Tensors one after the other, each in a place for a shape that is at least as large."""
    found, start = {}, 0
    for name, (dtype, shape) in shapes.items():
        found[name] = memory[start : start + num_bytes(dtype, shape)].view(_TYPES[dtype]).view(shape)
        start += -(-num_bytes(*places[name]) // ALIGNMENT) * ALIGNMENT
    return found
