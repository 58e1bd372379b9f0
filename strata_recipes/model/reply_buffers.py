"""The buffers of plan/reply_rows.py as tensors in one allocation, each at an address that stays. Knows no layer."""

from __future__ import annotations

import torch
from torch import Tensor

from strata_recipes.pack.index import Geometry
from strata_recipes.plan.reply_rows import ALIGNMENT, num_bytes, reply_bytes, reply_shapes

_TYPES = {"float32": torch.float32, "int32": torch.int32, "int64": torch.int64, "int8": torch.int8}


class ReplyBuffers:
    """`at[name]`: the buffer of that name, for `rows` rows. Zeroed, as some kernels leave what a row does not have as it was."""

    def __init__(self, g: Geometry, rows: int, context: int, device: torch.device, within: ReplyBuffers | None = None) -> None:
        """`within`: buffers for at least as many rows, in whose places these lie, each in the first part of its own."""
        self.rows, self.most = rows, rows if within is None else within.most
        size = reply_bytes(g, self.most, context)
        self.memory = torch.zeros(size, dtype=torch.uint8, device=device) if within is None else within.memory
        self._at: dict[str, Tensor] = {}
        start, places = 0, reply_shapes(g, self.most, context)
        for name, (dtype, shape) in reply_shapes(g, rows, context).items():
            self._at[name] = self.memory[start : start + num_bytes(dtype, shape)].view(_TYPES[dtype]).view(shape)
            start += -(-num_bytes(*places[name]) // ALIGNMENT) * ALIGNMENT

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
