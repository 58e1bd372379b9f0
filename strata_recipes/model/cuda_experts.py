"""The routed experts of one layer on a card: rows sorted by expert, groups of experts as their blobs arrive, sums in id order.

Knows where a blob's parts lie and at which address it is, never where it came from. A row's bits depend on the row and its expert
alone (kernels_numba), and contributions are added in ascending expert id, so that groups and pieces change no bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from kernels_numba.gpu.grouped_matmul import grouped_down, grouped_gate_up
from kernels_numba.gpu.groups import Groups, Part, tiles_of
from kernels_numba.gpu.moe import moe_scatter_add
from kernels_numba.gpu.quantize_rows import round_rows
from strata_recipes.model.arithmetic import HALVES
from strata_recipes.model.experts import Blobs, Routed
from strata_recipes.model.router import refuse_nan
from strata_recipes.pack.index import LayerExperts, PackIndex

Arrived = Sequence[tuple[int, int]]  # (expert, address on the card), ascending; valid until the next ones are asked for


class Ring(Protocol):
    """Brings blobs to the card, through memory of its own."""

    @property
    def memory(self) -> Tensor: ...

    def groups(self, layer: int, experts: Sequence[int], blobs: Blobs) -> Iterator[Arrived]: ...


@dataclass(frozen=True)
class _Sorted:
    """A layer's choices by expert: R = T * k rows, those of one expert in token order."""

    experts: list[int]  # that were chosen, ascending
    ends: np.ndarray  # [experts]: rows up to and with each
    rows: Tensor  # int32 [R]: the token of each
    places: Tensor  # int32 [T, k]: the row of each of a token's experts, ascending id
    weights: Tensor  # float32 [T, k], in that order


class CudaExperts:
    """On the grouped kernels. `most_rows`: of one launch, what `hidden` and `results` hold."""

    def __init__(self, index: PackIndex, compute: str, ring: Ring, most_rows: int, device: torch.device) -> None:
        g = index.geometry
        self._index = index
        self._compute = compute
        self._ring = ring
        self._hidden = torch.empty(most_rows, g.expert_width, dtype=HALVES.get(compute, torch.float32), device=device)
        self._results = torch.empty(most_rows, g.hidden, device=device)

    @property
    def idle_memory(self) -> Tensor:
        """uint8, on the card: what no prompt uses while none is read."""
        return self._ring.memory

    @torch.no_grad()
    def __call__(self, out: Routed, layer: int, blobs: Blobs, first: int = 0) -> None:
        order = self._sorted(out, layer, first)
        x, at = self._operand(out.x), self._index.layers[layer]
        start = 0
        for arrived in self._ring.groups(layer, order.experts, blobs):
            ends = order.ends[start : start + len(arrived)]
            assert [expert for expert, _ in arrived] == order.experts[start : start + len(arrived)], f"layer {layer}: experts out of order"
            begin = int(order.ends[start - 1]) if start else 0
            self._run(out, at, x, order, arrived, np.diff(ends, prepend=begin), begin)
            start += len(arrived)
        assert start == len(order.experts), f"layer {layer}: {start} of {len(order.experts)} experts came"

    def _sorted(self, out: Routed, layer: int, first: int) -> _Sorted:
        """Sorted on the card; the one wait of a layer is for the counts."""
        num_tokens, top_k = out.experts.shape
        ids, by_id = out.experts.sort(dim=1)
        weights = out.weights.gather(1, by_id)
        del by_id  # a long prompt has millions of choices
        by_expert = torch.argsort(ids.flatten(), stable=True)
        places = torch.empty_like(by_expert, dtype=torch.int32)
        places[by_expert] = torch.arange(by_expert.numel(), dtype=torch.int32, device=ids.device)
        counts = torch.bincount(ids.flatten(), minlength=self._index.geometry.num_experts)
        found = torch.cat((counts, weights.isnan().any()[None].to(counts.dtype))).cpu().numpy()
        if found[-1]:
            refuse_nan(out.weights, layer, first)
        chosen = np.flatnonzero(found[:-1])
        rows = (by_expert // top_k).to(torch.int32)
        return _Sorted(chosen.tolist(), np.cumsum(found[chosen]), rows, places.view(num_tokens, top_k), weights)

    def _run(self, out: Routed, at: LayerExperts, x: Tensor, order: _Sorted, arrived: Arrived, counts: np.ndarray, begin: int) -> None:
        """All rows of the experts that arrived, from sorted row `begin` on, in pieces that the workspace holds."""
        table = torch.tensor([address for _, address in arrived], dtype=torch.int64, device=x.device)
        for sizes in _pieces(counts, self._hidden.shape[0]):
            end = begin + int(sizes.sum())
            groups = Groups(table, torch.from_numpy(tiles_of(sizes)).to(x.device), order.rows[begin:end])
            self._multiply(x, groups, at, end - begin)
            inside = (order.places >= begin) & (order.places < end)
            places = torch.where(inside, order.places - begin, -1)
            moe_scatter_add(self._results[: end - begin], order.weights, places, out.acc)
            begin = end

    def _multiply(self, x: Tensor, groups: Groups, at: LayerExperts, num_rows: int) -> None:
        g, hidden, results = self._index.geometry, self._hidden[:num_rows], self._results[:num_rows]
        gate, up = Part(at.gate, 0), Part(at.up, at.gate_bytes)
        down = Part(at.down, at.gate_bytes + at.up_bytes)
        grouped_gate_up(x, groups, gate, up, g.expert_width, hidden, self._compute)
        sorted_already = Groups(groups.table, groups.tiles)
        grouped_down(hidden, sorted_already, down, g.hidden, results, self._compute)

    def _operand(self, values: Tensor) -> Tensor:
        if self._compute in HALVES:
            return values.to(HALVES[self._compute])
        if self._compute != "q8":
            return values
        out = torch.empty_like(values)
        round_rows(values, out)
        return out


def _pieces(counts: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Rows of each expert in one launch after the other, at most `most` in each; an expert's rows are cut where they must be."""
    ends = np.cumsum(counts)
    begins = ends - counts
    for start in range(0, int(ends[-1]) if len(ends) else 0, most):
        yield np.clip(np.minimum(ends, start + most) - np.maximum(begins, start), 0, None)
