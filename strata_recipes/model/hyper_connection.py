"""Hyper-connections: the residual stream is S streams; a gated mix of them is a block's input, and its output is injected back.

T tokens, S streams, H hidden.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from strata_recipes.model.norm import rms_norm
from strata_recipes.model.weights import Weights
from strata_recipes.pack.index import Geometry


class HyperConnection:
    """One block's read of the streams, and the strength with which each stream takes its output."""

    def __init__(self, weights: Weights, name: str, g: Geometry, injects: bool = True) -> None:
        self._streams, self._hidden, self._eps, self._rank = g.streams, g.hidden, g.norm_eps, g.stream_rank
        self.norm = weights.tensor(f"{name}_norm.weight").view(g.streams, g.hidden)
        self.down = weights.matrix(f"{name}_down.weight", *([f"{name}_inject.weight"] if injects else []))
        self.up = weights.matrix(f"{name}_up.weight")

    def __call__(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        """streams [T, S*H] -> the block's input [T, H] and the injection weights [T, S] (none: [T, 0])."""
        normed = rms_norm(streams.view(-1, self._streams, self._hidden), self.norm, self._eps)
        down, inject = (self.down(normed.flatten(1)) / self._streams).tensor_split([self._rank], dim=1)
        mix = torch.sigmoid(self.up(functional.silu(down))).view_as(normed)
        return (mix * normed).mean(1), 2 * torch.sigmoid(inject)


def inject(streams: Tensor, output: Tensor, strengths: Tensor) -> Tensor:
    """streams [T, S*H] + output [T, H] times each stream's strength [T, S]."""
    return streams + (output[:, None] * strengths[:, :, None]).flatten(1)
