"""Root-mean-square norms in float32, with the weight that GGUF stores (1 + w of the zero-centred ones)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Over the last dimension: x / sqrt(mean(x^2) + eps) * weight; `weight` broadcasts against x."""
    return functional.rms_norm(x, x.shape[-1:], eps=eps) * weight


def unit_norm(x: Tensor) -> Tensor:
    """Over the last dimension: x / sqrt(sum(x^2) + 1e-6), the gated delta net's norm of queries and keys."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
