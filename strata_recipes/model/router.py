"""Which experts a token goes to, and with what weights: softmax over all, the best k, weights summing to one. Always float32."""

from __future__ import annotations

from torch import Tensor

from strata_recipes.errors import ModelError
from strata_recipes.model.weights import Weights
from strata_recipes.pack.index import Geometry


class Router:
    """One layer's router."""

    def __init__(self, weights: Weights, g: Geometry, layer: int) -> None:
        self.scores = weights.matrix("ffn_gate_inp.weight")
        self._top_k, self._layer = g.top_k, layer

    def __call__(self, x: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """x [T, H] of tokens from `start` on -> experts int64 [T, k], best first, and weights [T, k]."""
        share = self.scores(x).softmax(-1)
        if share.device.type == "cpu":  # on a card the experts half looks, where it waits for the choice anyway
            refuse_nan(share, self._layer, start)
        share, experts = best_experts(share, self._top_k)
        return experts, share / share.sum(-1, keepdim=True)


def refuse_nan(share: Tensor, layer: int, start: int) -> None:
    """ModelError where a token's shares or weights [T, n] hold a NaN."""
    bad = share.isnan().any(-1)
    if bad.any():
        token = start + int(bad.nonzero()[0, 0])
        raise ModelError(
            f"the router of layer {layer} got a NaN at token {token} ({int(bad.sum())} of {bad.numel()} tokens of the span): "
            "check the model's files with experts.verify=true, or use compute=f32"
        )


def best_experts(share: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row, largest first, and their columns; equal ones go to the lower column."""
    values, columns = share.sort(dim=-1, descending=True, stable=True)
    return values[:, :count].contiguous(), columns[:, :count].contiguous()
