"""Rotary positions on the first `rotary_dim` values of a head. In text the sections of a 3-D position are all equal, so one
angle a pair is left."""

from __future__ import annotations

import torch
from torch import Tensor


class Rope:
    """The frequencies of one model."""

    def __init__(self, rotary_dim: int, base: float, device: torch.device | None = None) -> None:
        self.rotary_dim = rotary_dim
        frequencies = 1.0 / (base ** (torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim))
        self.frequencies = frequencies.to(device)  # made on the CPU: a card's pow has other last bits

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [T, 1, rotary_dim / 2] of int64 positions [T]; float32 angles, as the reference has them."""
        angles = (positions.to(torch.float32)[:, None] * self.frequencies)[:, None]
        return angles.cos(), angles.sin()

    def rotate(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        """x [T, heads, dim] turned by its tokens' angles: pairs are (i, i + rotary_dim / 2)."""
        cos, sin = angles
        half = self.rotary_dim // 2
        first, second = x[..., :half], x[..., half : self.rotary_dim]
        return torch.cat((first * cos - second * sin, second * cos + first * sin, x[..., self.rotary_dim :]), dim=-1)
