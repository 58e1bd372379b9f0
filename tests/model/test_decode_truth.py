"""The numpy truth of decode's mixer ops, put together as a layer, against the layer in torch: what a token costs, one definition."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kernels_numba import reference_decode_mixers as truth
from strata_recipes.model.gdn import GatedDeltaNet
from strata_recipes.model.kv_cache import DeltaState
from tests.kernels.delta_rows import Net, draw

# torch has float32 sums of at most 100 terms against float64 ones
CLOSE: dict[str, Any] = dict(rtol=2e-5, atol=2e-5)
EPS = 1e-6


class Columns:
    """Weights whose matrices pick columns of the input, so that a layer's ops are all that it does."""

    def __init__(self, columns: dict[str, slice], tensors: dict[str, np.ndarray]) -> None:
        self._columns, self._tensors = columns, tensors

    def matrix(self, *names: str) -> Callable[[Tensor], Tensor]:
        return lambda x: x[:, self._columns[names[0]]]

    def tensor(self, name: str) -> Tensor:
        return torch.from_numpy(self._tensors[name].copy())


@pytest.mark.parametrize("gate", ["silu", "sigmoid"])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_delta_net(rows: int, gate: str) -> None:
    """One row is the recurrent form, five are the chunked one."""
    net = Net(2, 6, 24)
    drawn = draw(net, rows)
    mixed = np.delete(drawn.mixed, net.channels, axis=1)
    inner, outer = slice(0, mixed.shape[1]), slice(mixed.shape[1], None)
    columns = {"attn_qkv.weight": inner, "ssm_alpha.weight": outer, "ssm_out.weight": slice(None)}
    tensors = {"ssm_conv1d.weight": drawn.weight, "ssm_a": drawn.decay, "ssm_dt.bias": drawn.bias, "ssm_norm.weight": drawn.norm}
    geometry: Any = SimpleNamespace(gdn_key_heads=2, gdn_value_heads=6, gdn_head_dim=24, norm_eps=EPS, output_gate=gate)
    weights: Any = Columns(columns, tensors)
    state = DeltaState(torch.from_numpy(drawn.conv.copy()), torch.from_numpy(drawn.state.copy()))
    want = GatedDeltaNet(weights, geometry)(torch.from_numpy(np.concatenate([mixed, drawn.rates], axis=1)), state)

    qkv, read, out = (np.full((rows, width), np.nan, np.float32) for width in (net.channels, net.width, net.width))
    truth.delta_conv(mixed, drawn.conv, drawn.weight, 2, 24, qkv)
    truth.delta_step(qkv, drawn.rates, drawn.decay, drawn.bias, drawn.state, 2, read)
    truth.delta_norm(read, mixed, net.channels, drawn.norm, EPS, gate, out)
    np.testing.assert_allclose(out, want, **CLOSE)
    np.testing.assert_allclose(drawn.state, state.delta, **CLOSE)
    np.testing.assert_array_equal(drawn.conv, state.conv)
