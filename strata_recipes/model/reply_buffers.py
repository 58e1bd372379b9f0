"""The buffers of plan/reply_rows.py as tensors in one allocation, each at an address that stays. Knows no layer."""

from __future__ import annotations

import torch
from torch import Tensor

from strata_recipes.pack.index import Geometry
from strata_recipes.plan.reply_rows import ALIGNMENT, num_bytes, reply_bytes, reply_shapes

_TYPES = {"float32": torch.float32, "int32": torch.int32, "int64": torch.int64, "int8": torch.int8}


class ReplyBuffers:
    """`at[name]`: the buffer of that name, for `rows` rows. Zeroed, as some kernels leave what a row does not have as it was."""

    def __init__(self, g: Geometry, rows: int, context: int, device: torch.device, memory: Tensor | None = None) -> None:
        """`memory`: of buffers for at least as many rows, which these share."""
        self.rows = rows
        self.memory = torch.zeros(reply_bytes(g, rows, context), dtype=torch.uint8, device=device) if memory is None else memory
        self._at: dict[str, Tensor] = {}
        start = 0
        for name, (dtype, shape) in reply_shapes(g, rows, context).items():
            size = num_bytes(dtype, shape)
            self._at[name] = self.memory[start : start + size].view(_TYPES[dtype]).view(shape)
            start += -(-size // ALIGNMENT) * ALIGNMENT

    def __getitem__(self, name: str) -> Tensor:
        return self._at[name]
