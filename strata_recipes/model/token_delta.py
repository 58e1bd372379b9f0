"""The gated delta net of one layer for a few tokens, on kernels that a graph can capture."""

from __future__ import annotations

from typing import Any

from strata_recipes.model.gdn import GatedDeltaNet
from strata_recipes.model.kv_cache import DeltaState
from strata_recipes.model.projection import Projection
from strata_recipes.model.reply_buffers import ReplyBuffers
from strata_recipes.pack.index import Geometry


class TokenDelta:
    """x -> block, both buffers; the state moves on."""

    def __init__(self, ops: Any, buffers: ReplyBuffers, delta: GatedDeltaNet, g: Geometry, state: DeltaState) -> None:
        self._ops, self._b, self._net, self._g, self._state = ops, buffers, delta, g, state
        self._input, self._rates, self._output = (Projection(ops, buffers, m) for m in (delta.input, delta.rates, delta.output))

    def __call__(self, stream: int) -> None:
        b, net, g, state, ops = self._b, self._net, self._g, self._state, self._ops
        self._input(b["x"], b["mixed"], stream)
        self._rates(b["x"], b["rates"], stream)
        ops.delta_conv(b["mixed"], state.conv, net.conv, g.gdn_key_heads, g.gdn_head_dim, b["convolved"], stream)
        ops.delta_step(b["convolved"], b["rates"], net.decay, net.bias, state.delta, g.gdn_key_heads, b["read"], stream)
        offset = net.conv.shape[0]
        ops.delta_norm(b["read"], b["mixed"], offset, net.norm, g.norm_eps, g.output_gate, b["gated"], stream)
        self._output(b["gated"], b["block"], stream)
