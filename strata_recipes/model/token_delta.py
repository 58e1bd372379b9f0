"""The gated delta net of one layer for a few tokens, on kernels that a graph can capture."""

from __future__ import annotations

from typing import Any

from strata_recipes.model.gdn import GatedDeltaNet
from strata_recipes.model.kv_cache import DeltaState
from strata_recipes.model.projection import Projection
from strata_recipes.model.reply_buffers import ReplyBuffers
from strata_recipes.pack.index import Geometry


class TokenDelta:
    """x -> block, both buffers; the state moves on. What reads x is one product: convolved columns, gates, rates."""

    def __init__(self, ops: Any, buffers: ReplyBuffers, delta: GatedDeltaNet, g: Geometry, state: DeltaState) -> None:
        self._ops, self._b, self._net, self._g, self._state = ops, buffers, delta, g, state
        self._input, self._output = Projection(ops, buffers, delta.input, delta.rates), Projection(ops, buffers, delta.output)

    def __call__(self, stream: int) -> None:
        b, net, g, state, ops = self._b, self._net, self._g, self._state, self._ops
        self._input(b["x"], b["mixed"], stream)
        ops.delta_conv(b["mixed"], state.conv, net.conv, g.gdn_key_heads, g.gdn_head_dim, b["convolved"], stream)
        gates, rates = net.conv.shape[0], net.conv.shape[0] + b["read"].shape[1]
        ops.delta_step(b["convolved"], b["mixed"], rates, net.decay, net.bias, state.delta, g.gdn_key_heads, b["read"], stream)
        ops.delta_norm(b["read"], b["mixed"], gates, net.norm, g.norm_eps, g.output_gate, b["gated"], stream)
        self._output(b["gated"], b["block"], stream)
