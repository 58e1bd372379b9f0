"""What a super-chunk's spans hand to their experts, side by side in one set of arrays that all layers use in turn."""

from __future__ import annotations

import dataclasses

import torch

from strata_recipes.model.mixer_out import MixerOut
from strata_recipes.pack.index import Geometry


class KeptRows:
    """Rows of up to `num_tokens` tokens from position `first` on: x and acc [T, H], experts and weights [T, k]."""

    def __init__(self, g: Geometry, first: int, num_tokens: int, device: torch.device | None = None) -> None:
        self.first = first
        self.x = torch.empty(num_tokens, g.hidden, device=device)
        self.acc = torch.empty(num_tokens, g.hidden, device=device)
        self.experts = torch.empty(num_tokens, g.top_k, dtype=torch.int64, device=device)
        self.weights = torch.empty(num_tokens, g.top_k, device=device)

    @property
    def num_bytes(self) -> int:
        """Allocated bytes."""
        return sum(part.nbytes for part in (self.x, self.acc, self.experts, self.weights))

    def keep(self, start: int, out: MixerOut) -> MixerOut:
        """The same span, its rows moved to their place here: what experts add to `acc` shows in it."""
        at = slice(start - self.first, start - self.first + out.x.shape[0])
        for mine, theirs in ((self.x, out.x), (self.acc, out.acc), (self.experts, out.experts), (self.weights, out.weights)):
            mine[at].copy_(theirs)
        return dataclasses.replace(out, x=self.x[at], acc=self.acc[at], experts=self.experts[at], weights=self.weights[at])
