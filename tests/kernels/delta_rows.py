"""A gated delta net between its matrices: random inputs of a few tokens, and its states before them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Net:
    """K key heads, V value heads, D values a head."""

    key_heads: int
    value_heads: int
    dim: int
    taps: int = 4

    @property
    def channels(self) -> int:
        return (2 * self.key_heads + self.value_heads) * self.dim

    @property
    def width(self) -> int:
        """Of what the heads read."""
        return self.value_heads * self.dim


@dataclass(frozen=True)
class Rows:
    """mixed [R, N]: C channels, V * D gates and 2 V rates, each after a column that is not read; the states, the layer's small weights."""

    net: Net
    mixed: Floats
    conv: Floats
    state: Floats
    weight: Floats
    decay: Floats
    bias: Floats
    norm: Floats

    @property
    def rates_at(self) -> int:
        return self.net.channels + self.net.width + 2

    @property
    def rates(self) -> Floats:
        """alpha, then beta, as a view of mixed."""
        return self.mixed[:, self.rates_at :]

    def part(self, at: int, to: int) -> Rows:
        """Rows at .. to, with copies of the states."""
        arrays = self.mixed[at:to].copy(), self.conv.copy(), self.state.copy()
        return Rows(self.net, *arrays, self.weight, self.decay, self.bias, self.norm)


def draw(net: Net, rows: int, seed: int = 0) -> Rows:
    """As a layer has them: decays below 0, biases that make some rates large."""
    rng = np.random.default_rng(seed)
    heads, dim, channels = net.value_heads, net.dim, net.channels
    shapes = ((rows, channels + net.width + 2 + 2 * heads), (net.taps - 1, channels), (heads, dim, dim), (channels, net.taps),
              (heads,), (heads,), (dim,))  # fmt: skip
    mixed, conv, state, weight, decay, bias, norm = (rng.standard_normal(size).astype(np.float32) for size in shapes)
    return Rows(net, mixed, conv, state, weight, -np.exp(decay - 2), 8 * bias, norm)
