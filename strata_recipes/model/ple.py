"""The n-gram embedding (PLE): the last ids are hashed to rows of a huge table, and what they hold is gated into every stream.

T tokens, S streams, H hidden, n the longest n-gram. The table stays in its file: rows are read one by one.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from strata_recipes.model.kv_cache import NgramState
from strata_recipes.model.norm import rms_norm
from strata_recipes.model.short_conv import short_conv
from strata_recipes.model.weights import PackLike, Weights
from strata_recipes.model.widen import widen
from strata_recipes.pack.index import Geometry


class NgramHash:
    """Rows of the table for a span of ids; all of it is int64 arithmetic that wraps."""

    def __init__(self, g: Geometry, which: int) -> None:
        heads = (g.ngram_size - 1) * g.ngram_heads
        self._size, self._eos, self._heads = g.ngram_size, g.ngram_eos, g.ngram_heads
        self._multipliers = g.ngram_multipliers[which * g.ngram_size : (which + 1) * g.ngram_size]
        self._vocab = torch.tensor(g.ngram_vocab_sizes[which * heads : (which + 1) * heads])
        self._offsets = torch.tensor(g.ngram_offsets[which * heads : (which + 1) * heads])

    def __call__(self, ids: Tensor, history: Tensor) -> Tensor:
        """int64 ids [T] after history [n - 1] (moved on in place) -> rows [T, (n - 1) * heads], orders 2 to n."""
        joined = torch.cat((history, ids))
        num_tokens, before = ids.shape[0], history.shape[0]
        mixed, cut, orders = ids * self._multipliers[0], torch.zeros_like(ids, dtype=torch.bool), []
        for shift in range(1, self._size):
            earlier = joined[before - shift : before - shift + num_tokens]
            cut = cut | (earlier == self._eos)  # nothing before an end of text is seen
            mixed = mixed ^ (torch.where(cut, self._eos, earlier) * self._multipliers[shift])
            orders.append(mixed[:, None].expand(-1, self._heads))
        history.copy_(joined[num_tokens:])
        return torch.cat(orders, dim=1).remainder(self._vocab) + self._offsets


class NgramEmbedding:
    """The n-gram layer `which` of the model, counted over layers that have one."""

    def __init__(self, pack: PackLike, weights: Weights, g: Geometry, which: int) -> None:
        self._pack, self._g = pack, g
        self._hash = NgramHash(g, which)
        self.input = weights.matrix("ple_key.weight", "ple_value.weight")
        self._key_norm, self._query_norm, self._conv_norm = (
            weights.tensor(f"ple_norm_{name}.weight").view(g.streams, g.hidden) for name in ("key", "query", "conv")
        )
        self._conv = weights.tensor("ple_conv1d.weight")

    def __call__(self, streams: Tensor, ids: Tensor, state: NgramState) -> Tensor:
        """streams [T, S*H] with what the n-grams ending at each of ids [T] add to them."""
        return self.add(streams, self.input(self.rows(ids, state).to(streams.device)), state)

    def rows(self, ids: Tensor, state: NgramState) -> Tensor:
        """What the table holds for the n-grams ending at each of ids [T]: [T, heads * width] on the CPU; the history moves on."""
        return self._rows(self._hash(ids, state.history))

    def add(self, streams: Tensor, projected: Tensor, state: NgramState) -> Tensor:
        """The same from the product of the table's rows and `input`'s matrix, all of it where they lie."""
        g = self._g
        key, value = projected.tensor_split([g.streams * g.hidden], dim=1)
        key = rms_norm(key.reshape(-1, g.streams, g.hidden), self._key_norm, g.norm_eps)
        query = rms_norm(streams.view_as(key), self._query_norm, g.norm_eps)
        match = (key * query).sum(-1, keepdim=True) / math.sqrt(g.hidden)
        match = match.abs().clamp_min(1e-6).sqrt() * match.sign()
        gated = torch.sigmoid(match) * value[:, None]
        context = short_conv(rms_norm(gated, self._conv_norm, g.norm_eps).flatten(1), state.conv, self._conv, g.ngram_size)
        return streams + (gated.flatten(1) + context)

    def _rows(self, rows: Tensor) -> Tensor:
        """Table rows [T, heads] -> their values side by side [T, heads * width]; each row is read once, in file order."""
        wanted, where = np.unique(rows.numpy(), return_inverse=True)
        data, format_name = self._pack.ngram_rows(wanted)
        values = widen(np.ascontiguousarray(data).reshape(-1), format_name).reshape(wanted.size, -1)
        return torch.from_numpy(values[where.reshape(-1)].reshape(rows.shape[0], -1))
