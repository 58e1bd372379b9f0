"""The gated delta net's two forms against its definition, token by token in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from strata_recipes.model.gdn import chunked, recurrent

HEADS, DIM = 3, 16


def draw(tokens: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    make = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(tokens, HEADS, DIM, generator=make) for _ in range(3))
    k = k / k.norm(dim=-1, keepdim=True)
    return q, k, v, -3 * torch.rand(tokens, HEADS, generator=make) ** 4, torch.rand(tokens, HEADS, generator=make)


def definition(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, state: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """S = decay * S; S += beta * k (v - k S)^T; o = q S."""
    s, out = state.double().numpy().copy(), []
    for q_t, k_t, v_t, g_t, b_t in zip(*(part.double().numpy() for part in (q, k, v, log_decay, beta)), strict=True):
        s = s * np.exp(g_t)[:, None, None]
        s = s + b_t[:, None, None] * k_t[:, :, None] * (v_t - np.einsum("hk,hkv->hv", k_t, s))[:, None]
        out.append(np.einsum("hk,hkv->hv", q_t, s))
    return np.stack(out), s


@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 65, 200])
def test_chunked_equals_the_definition(tokens: int) -> None:
    state = torch.randn(HEADS, DIM, DIM, generator=torch.Generator().manual_seed(9))
    operands = draw(tokens)
    want, after = definition(*operands, state)
    got = chunked(*operands, state)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(state, after, rtol=2e-5, atol=2e-5)


def test_recurrent_equals_the_definition() -> None:
    state = torch.zeros(HEADS, DIM, DIM)
    operands = draw(40)
    want, after = definition(*operands, state)
    got = torch.cat([recurrent(*(part[t : t + 1] for part in operands), state) for t in range(40)])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(state, after, rtol=1e-5, atol=1e-5)


def test_a_strong_decay_forgets_and_stays_finite() -> None:
    """exp of a sum of decays over a chunk underflows to 0; exp of its negative would overflow."""
    q, k, v, log_decay, beta = draw(130)
    state = torch.ones(HEADS, DIM, DIM)
    want, _ = definition(q, k, v, log_decay - 50, beta, state)
    got = chunked(q, k, v, log_decay - 50, beta, state)
    assert torch.isfinite(got).all() and torch.isfinite(state).all()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
