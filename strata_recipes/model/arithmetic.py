"""What `compute` means for an operand of a matmul: it is rounded, then multiplied and summed in float32.

bf16 and f16 operands go back to float32 before the product: their products are exact there, and the sum stays float32,
which a CPU's own bf16 matmul would round at its end. q8 rounds activations to 8 bits with one float32 scale for 32 values.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

COMPUTE = ("f32", "bf16", "f16", "q8")
HALVES = {"bf16": torch.bfloat16, "f16": torch.float16}
_GROUP = 32  # values that share a scale in q8


def rounded(x: Tensor, compute: str) -> Tensor:
    """x [.., n] float32 as an operand of `compute`: the same shape, float32, its values rounded."""
    if compute in HALVES:
        return x.to(HALVES[compute]).to(torch.float32)
    return _rounded_q8(x) if compute == "q8" else x


def _rounded_q8(x: Tensor) -> Tensor:
    size = x.shape[-1]
    groups = functional.pad(x, (0, -size % _GROUP)).view(*x.shape[:-1], -1, _GROUP)
    scale = groups.abs().amax(-1, keepdim=True) / 127
    whole = torch.round(groups / torch.where(scale > 0, scale, 1.0))
    return (whole * scale).flatten(-2)[..., :size]
