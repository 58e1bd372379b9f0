"""The expert that every token goes to, with its gate. It is dense: its weights never move."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from strata_recipes.model.weights import Weights


class SharedExpert:
    """One layer's shared expert."""

    def __init__(self, weights: Weights) -> None:
        self.input = weights.matrix("ffn_gate_shexp.weight", "ffn_up_shexp.weight")
        self.down = weights.matrix("ffn_down_shexp.weight")
        self.gate = weights.tensor("ffn_gate_inp_shexp.weight").view(-1)

    def __call__(self, x: Tensor) -> Tensor:
        """[T, H] -> [T, H]."""
        gate, up = self.input(x).chunk(2, dim=1)
        return torch.sigmoid(x @ self.gate)[:, None] * self.down(functional.silu(gate) * up)
