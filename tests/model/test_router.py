"""The router: order, ties, weights, and its refusal of a NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from strata_recipes.errors import ModelError
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.model.router import Router, best_experts
from strata_recipes.model.weights import Weights


def test_ties_go_to_the_lower_expert() -> None:
    share = torch.tensor([[0.1, 0.3, 0.3, 0.0, 0.3], [0.2, 0.2, 0.2, 0.2, 0.2]]).repeat(1, 40)
    values, experts = best_experts(share, 4)
    assert experts.tolist() == [[1, 2, 4, 6], [0, 1, 2, 3]]
    assert values.tolist() == [[pytest.approx(0.3)] * 4, [pytest.approx(0.2)] * 4]


def test_weights_are_the_chosen_shares_made_to_sum_to_one(small: Any) -> None:
    pack = small[1]
    x = torch.randn(9, pack.index.geometry.hidden, generator=torch.Generator().manual_seed(1))
    experts, weights = Router(Weights(pack, "f32").layer(2), pack.index.geometry, 2)(x, 0)
    scores = x.double().numpy() @ small[0].model.layers[2].mlp.gate.weight.detach().double().numpy().T
    want = np.argsort(-scores, axis=1)[:, :3]
    assert experts.tolist() == want.tolist()
    shares = np.exp(np.take_along_axis(scores, want, 1))
    np.testing.assert_allclose(weights, shares / shares.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("compute", ["bf16", "f16", "q8"])
def test_routers_are_never_rounded(small: Any, compute: str) -> None:
    pack = small[1]
    x = torch.randn(9, pack.index.geometry.hidden, generator=torch.Generator().manual_seed(1))
    wanted, got = (Router(Weights(pack, c).layer(0), pack.index.geometry, 0)(x, 0) for c in ("f32", compute))
    assert torch.equal(wanted[0], got[0]) and torch.equal(wanted[1], got[1])


def test_a_nan_is_refused_with_layer_and_token(small: Any) -> None:
    pack = small[1]
    router = Router(Weights(pack, "f32").layer(2), pack.index.geometry, 2)
    x = torch.ones(6, pack.index.geometry.hidden)
    x[3:5, 7] = torch.nan
    with pytest.raises(ModelError, match=r"router of layer 2 got a NaN at token 43 \(2 of 6 tokens of the span\)"):
        router(x, 40)


def test_a_nan_in_the_streams_stops_the_layer_that_meets_it(small: Any) -> None:
    model = Qwen4Exp(small[1], "f32", "fp32", 64, 1)
    ids, state = np.arange(5), model.new_state()
    streams = model.embed(ids)
    streams[4, 7] = torch.nan
    with pytest.raises(ModelError, match="router of layer 0 got a NaN at token"):
        model.mixer(0, streams, ids, state, 0)
