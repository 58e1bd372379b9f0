"""Which blocks of earlier tokens a QSA query reads. Knows no keys or values, only its own small vectors.

A block is `index_block` neighbouring tokens; its index key is the mean of theirs, normed, rotated to its first token. A query
sees the blocks that are whole up to and with itself, scores them, and takes the best `index_budget` tokens' worth. The
tokens after its last whole block it reads always.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from strata_recipes.model.kv_cache import AttentionState
from strata_recipes.model.norm import rms_norm
from strata_recipes.model.rope import Rope
from strata_recipes.model.weights import Weights
from strata_recipes.pack.index import Geometry


class Indexer:
    """The index of one QSA layer."""

    def __init__(self, weights: Weights, g: Geometry, rope: Rope) -> None:
        self._rope, self._eps, self.block = rope, g.norm_eps, g.index_block
        self.heads, self._dim = g.indexer_heads, g.indexer_dim
        self.num_selected = g.index_budget // g.index_block
        self.q, self.k = weights.matrix("indexer.q_proj.weight"), weights.matrix("indexer.k_proj.weight")
        self.q_norm, self.k_norm = weights.tensor("indexer.q_norm.weight"), weights.tensor("indexer.k_norm.weight")

    @property
    def first_choice(self) -> int:
        """The first position with more whole blocks than it may read; before it a query reads everything."""
        return (self.num_selected + 1) * self.block - 1

    def append(self, x: Tensor, state: AttentionState, start: int) -> None:
        """Take in the index keys of tokens start .. start + T from x [T, H]."""
        joined = torch.cat((state.pending[: start % self.block], self.k(x)))
        first, whole = start // self.block, joined.shape[0] // self.block
        state.pending[: joined.shape[0] % self.block] = joined[whole * self.block :]
        if whole:
            pooled = joined[: whole * self.block].view(whole, self.block, self._dim).mean(1)
            angles = self._rope.angles(torch.arange(first, first + whole, device=x.device) * self.block)
            keys = rms_norm(pooled, self.k_norm, self._eps)[:, None]
            state.blocks[first : first + whole] = self._rope.rotate(keys, angles)[:, 0]

    def queries(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        """Index queries [T, index heads, index dim] of x [T, H]."""
        heads = self.q(x).view(x.shape[0], self.heads, self._dim)
        return self._rope.rotate(rms_norm(heads, self.q_norm, self._eps), angles)

    def scores(self, queries: Tensor, blocks: Tensor) -> Tensor:
        """queries [T, index heads, dim] and blocks [n, dim] -> [T, n]: the sum over index heads of relu(query . key)."""
        dots = (queries.flatten(0, 1) @ blocks.t()).view(*queries.shape[:2], -1)
        return dots.relu_().sum(1).div_(math.sqrt(self._dim))  # in place: a card counts this memory

    def select(self, scores: Tensor, start: int) -> Tensor:
        """The blocks [T, num_selected], ascending, that queries at positions from `start` on read, given scores [T, n].

        Queries with the same number of whole blocks are ranked together, each over just these: torch.topk then settles equal scores
        (a block that no index head likes scores exactly 0) as it does in the reference, query by query.
        """
        if scores.device.type == "cuda":
            return self._select_together(scores, start)
        chosen, row = [], 0
        while row < scores.shape[0]:
            whole = (start + row + 1) // self.block
            end = (whole + 1) * self.block - 1 - start  # the first row that sees one block more
            chosen.append(scores[row:end, :whole].topk(self.num_selected, dim=1).indices)
            row = end
        return torch.cat(chosen).sort(dim=1).values

    def has_ties(self, scores: Tensor, chosen: Tensor, whole: Tensor) -> Tensor:
        """Bool [T]: whether more of a query's `whole` [T] blocks score as high as the least that was chosen."""
        last = scores.gather(1, chosen.to(torch.int64)).amin(1, keepdim=True)
        seen = torch.arange(scores.shape[1], device=scores.device) < whole[:, None]
        return ((scores >= last) & seen).sum(1) > self.num_selected

    def _select_together(self, scores: Tensor, start: int) -> Tensor:
        """All queries in one launch. Rows where equal scores leave a choice are ranked as above, on the CPU."""
        from kernels_numba.gpu.select_blocks import select_blocks  # numba-cuda's import is for those who have a card

        chosen = torch.empty(scores.shape[0], self.num_selected, dtype=torch.int32, device=scores.device)
        select_blocks(scores, self.block, start, chosen)
        whole = (torch.arange(start, start + scores.shape[0], device=scores.device) + 1) // self.block
        tied = self.has_ties(scores, chosen, whole).nonzero()[:, 0]
        if tied.numel():
            rows = zip(scores[tied].cpu(), whole[tied].tolist(), strict=True)
            ranked = [row[:size].topk(self.num_selected).indices.sort().values for row, size in rows]
            chosen[tied] = torch.stack(ranked).to(chosen.device, torch.int32)
        return chosen
