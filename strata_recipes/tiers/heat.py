"""How often a reply's tokens chose each expert: lately, older choices counting less, and in all. Knows no place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Heat:
    """[layers, experts] each. `decay`: what earlier choices are worth of new ones, once for each `fold`."""

    def __init__(self, num_layers: int, num_experts: int, decay: float) -> None:
        self.recent: NDArray[np.float64] = np.zeros((num_layers, num_experts))
        self.total: NDArray[np.int64] = np.zeros((num_layers, num_experts), np.int64)
        self._decay = decay
        self._seen: list[list[int]] = [[] for _ in range(num_layers)]  # since the last fold: an append costs 0.1 us, an array 5

    def add(self, layer: int, experts: Sequence[int]) -> None:
        """One layer's choices of one token, or of several that were computed together."""
        self._seen[layer].extend(experts)

    def fold(self) -> None:
        """Counts what was added since the last time."""
        new = self._new()
        self.recent *= self._decay
        self.recent += new
        self.total += new
        for seen in self._seen:
            seen.clear()

    def counted(self) -> NDArray[np.int64]:
        """All choices so far, those that are not folded too."""
        return self.total + self._new()

    def _new(self) -> NDArray[np.int64]:
        return np.stack([np.bincount(np.array(seen, np.int64), minlength=self.total.shape[1]) for seen in self._seen])
