"""QSA: grouped-query attention with an output gate, over all keys while they are few and over selected blocks after that.

T tokens, G query heads a kv head, K kv heads, D head dimension. Work a span is T x blocks and T x selected keys, in tiles of
queries that hold at most `_TILE_BYTES`; on a card a kernel reads keys where they lie. Which form
a token takes depends on its position alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from strata_recipes.model.indexer import Indexer
from strata_recipes.model.kv_cache import AttentionState
from strata_recipes.model.kv_cells import rotate
from strata_recipes.model.norm import rms_norm
from strata_recipes.model.rope import Rope
from strata_recipes.model.weights import Weights
from strata_recipes.pack.index import Geometry
from strata_recipes.plan.budget import SELECT_BYTES

_TILE_BYTES = {"cpu": 16 << 20, "cuda": SELECT_BYTES}  # a card wants few launches


class SelectedAttention:
    """One QSA layer."""

    def __init__(self, weights: Weights, g: Geometry, rope: Rope) -> None:
        self.rope, self._eps = rope, g.norm_eps
        self._query_heads, self._kv_heads, self._dim = g.query_heads, g.kv_heads, g.head_dim
        self.input = weights.matrix("attn_q.weight", "attn_k.weight", "attn_v.weight")
        self.q_norm, self.k_norm = weights.tensor("attn_q_norm.weight"), weights.tensor("attn_k_norm.weight")
        self.output = weights.matrix("attn_output.weight")
        self.indexer = Indexer(weights, g, rope)

    def __call__(self, x: Tensor, state: AttentionState, start: int) -> Tensor:
        """[T, H] -> [T, H] for tokens start .. start + T, whose keys and values join the state."""
        stop = start + x.shape[0]
        angles = self.rope.angles(torch.arange(start, stop, device=x.device))
        heads = self.input(x).view(x.shape[0], -1, self._dim)  # a query head is followed by its gate
        wide, key, value = heads.tensor_split([2 * self._query_heads, 2 * self._query_heads + self._kv_heads], dim=1)
        query, gate = wide[:, ::2], wide[:, 1::2]
        query = self.rope.rotate(rms_norm(query, self.q_norm, self._eps), angles)
        key = self.rope.rotate(rms_norm(key, self.k_norm, self._eps), angles)
        state.keys.write(start, key)
        state.values.write(start, value)
        self.indexer.append(x, state, start)
        # heads by kv head first: [K, T, G, D]
        query = rotate(query * self._dim**-0.5, state.keys.form).view(x.shape[0], self._kv_heads, -1, self._dim).transpose(0, 1)
        middle = min(max(self.indexer.first_choice, start), stop)
        index = None
        if middle < stop:
            index = self.indexer.queries(x[middle - start :], (angles[0][middle - start :], angles[1][middle - start :]))
        on_card = query.device.type == "cuda" and self._dim % 32 == 0 and self._dim <= 256 and query.shape[2] <= 16  # the kernel's limits
        read = self._read_on_card(query, index, state, start) if on_card else self._read(query, index, state, start, middle)
        read = rotate(read, state.values.form).transpose(0, 1)
        return self.output((read * torch.sigmoid(gate).view(x.shape[0], self._kv_heads, -1, self._dim)).flatten(1))

    def _read_on_card(self, query: Tensor, index: Tensor | None, state: AttentionState, start: int) -> Tensor:
        """One launch over all queries [K, T, G, D]; those of `index`, the last ones, over their own blocks."""
        from kernels_numba.gpu.selected_attention import selected_attention  # numba-cuda's import is for those who have a card

        stop = start + query.shape[1]
        chosen = torch.zeros(query.shape[1], self.indexer.num_selected, dtype=torch.int32, device=query.device)
        if index is not None:
            middle = stop - index.shape[0]
            for at, to in _tiles(middle, stop, 4 * (self.indexer.heads + 2) * (stop // self.indexer.block), query.device):
                scores = self.indexer.scores(index[at - middle : to - middle], state.blocks[: to // self.indexer.block])
                chosen[at - start : to - start] = self.indexer.select(scores, at)
        query = query.contiguous()
        read = torch.empty_like(query)
        selected_attention(query, state.keys, state.values, chosen, self.indexer.block, start, read)
        return read

    def _read(self, query: Tensor, index: Tensor | None, state: AttentionState, start: int, middle: int) -> Tensor:
        """The same without the kernel: everything up to `middle`, then selected keys, gathered tile by tile."""
        read = torch.empty_like(query)
        for at, to in _tiles(start, middle, 4 * self._query_heads * middle, query.device):
            read[:, at - start : to - start] = read_all(query[:, at - start : to - start], state, at)
        if index is not None:
            self._read_selected(query[:, middle - start :], index, state, middle, read[:, middle - start :])
        return read

    def _read_selected(self, query: Tensor, index: Tensor, state: AttentionState, start: int, read: Tensor) -> None:
        """Fill read [K, T, G, D] for queries from position `start` on, each over its own blocks and the tokens after them."""
        stop, block = start + query.shape[1], self.indexer.block
        num_keys = (self.indexer.num_selected + 1) * block - 1
        token_bytes = 4 * max(2 * self._kv_heads * self._dim * num_keys, (self.indexer.heads + 2) * (stop // block))
        for at, to in _tiles(start, stop, token_bytes, query.device):
            scores = self.indexer.scores(index[at - start : to - start], state.blocks[: to // block])
            tokens, hidden = _tokens(self.indexer.select(scores, at), torch.arange(at, to, device=query.device), block)
            read[:, at - start : to - start] = read_tokens(query[:, at - start : to - start], state, tokens, hidden)


def read_all(query: Tensor, state: AttentionState, start: int) -> Tensor:
    """Attention of query [K, T, G, D] (scaled) at positions from `start` on over every token up to each. -> [K, T, G, D]"""
    stop = start + query.shape[1]
    keys, values = state.keys.first(stop), state.values.first(stop)
    scores = (query.flatten(1, 2) @ keys.transpose(1, 2)).view(*query.shape[:3], stop)
    positions = torch.arange(stop, device=query.device)
    hidden = positions > positions[start:, None]
    share = scores.masked_fill_(hidden[None, :, None], -torch.inf).softmax(-1)
    return (share.flatten(1, 2) @ values).view_as(query)


def read_tokens(query: Tensor, state: AttentionState, tokens: Tensor, hidden: Tensor) -> Tensor:
    """Attention of query [K, T, G, D] (scaled) over its own tokens [T, n] but the hidden ones. -> [K, T, G, D]"""
    shape = (query.shape[0], *tokens.shape, query.shape[3])
    keys, values = (part.gather(tokens.flatten()).view(shape) for part in (state.keys, state.values))
    scores = query @ keys.transpose(2, 3)
    return scores.masked_fill_(hidden[None, :, None], -torch.inf).softmax(-1) @ values


def _tokens(chosen: Tensor, positions: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Token positions [T, n], ascending, of chosen blocks [T, b] and of the tail, and which of them lie after the query."""
    inside = (chosen[:, :, None] * block + torch.arange(block, device=chosen.device)).flatten(1)
    tail = ((positions + 1) // block * block)[:, None] + torch.arange(block - 1, device=chosen.device)
    tokens = torch.cat((inside, tail), dim=1)
    hidden = tokens > positions[:, None]
    return tokens.masked_fill(hidden, 0), hidden


def _tiles(start: int, stop: int, token_bytes: int, device: torch.device) -> Iterator[tuple[int, int]]:
    size = max(1, _TILE_BYTES[device.type] // max(1, token_bytes))
    for at in range(start, stop, size):
        yield at, min(at + size, stop)
