"""QSA of one layer for a few tokens, on kernels that a graph can capture: which form a token takes is found on the card."""

from __future__ import annotations

from typing import Any

from strata_recipes.model.kv_cache import AttentionState
from strata_recipes.model.projection import Projection
from strata_recipes.model.qsa import SelectedAttention
from strata_recipes.model.reply_buffers import ReplyBuffers
from strata_recipes.pack.index import Geometry


class TokenAttention:
    """x -> block, both buffers; keys, values and index keys join the state."""

    def __init__(self, ops: Any, buffers: ReplyBuffers, attention: SelectedAttention, g: Geometry, state: AttentionState) -> None:
        self._ops, self._b, self._at, self._g, self._state = ops, buffers, attention, g, state
        self._input, self._output = Projection(ops, buffers, attention.input), Projection(ops, buffers, attention.output)
        self._index_input = Projection(ops, buffers, attention.indexer.k, attention.indexer.q)

    def __call__(self, stream: int) -> None:
        b, at, g, state, ops = self._b, self._at, self._g, self._state, self._ops
        frequencies, position = at.rope.frequencies, b["position"]
        self._input(b["x"], b["heads"], stream)
        ops.attention_inputs(
            b["heads"], at.q_norm, at.k_norm, g.norm_eps, frequencies, position, b["query"], state.keys, state.values, stream
        )
        self._select(stream)
        ops.attention_decode(
            b["query"],
            state.keys,
            state.values,
            b["chosen"],
            b["heads"],
            g.index_block,
            position,
            b["partial"],
            b["attended"],
            stream,
        )
        self._output(b["attended"], b["block"], stream)

    def _select(self, stream: int) -> None:
        b, g, state, ops, index = self._b, self._g, self._state, self._ops, self._at.indexer
        frequencies, position, queries = self._at.rope.frequencies, b["position"], b["index_queries"]
        self._index_input(b["x"], b["index"], stream)
        keys = state.pending, state.blocks, g.index_block
        ops.index_append(b["index"], 0, *keys, index.k_norm, g.norm_eps, frequencies, position, stream)
        ops.index_queries(b["index"], g.indexer_dim, index.q_norm, g.norm_eps, frequencies, position, queries, stream)
        ops.index_scores_at(queries, state.blocks, g.index_block, index.num_selected, position, b["index_scores"], stream)
        ops.select_blocks_at(b["index_scores"], g.index_block, position, b["chosen"], stream)
