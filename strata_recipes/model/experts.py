"""The routed experts of one layer over one span: each is fetched once, widened, run on its tokens, and added in id order.

Knows where a blob's parts lie, never where the blob comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from kernels_numba.cpu.dequantize import dequantize
from kernels_numba.cpu.expert_mlp import expert_hidden, project, scatter_add
from kernels_numba.formats import FORMATS
from strata_recipes.model.arithmetic import HALVES, rounded
from strata_recipes.model.scratch import ExpertScratch
from strata_recipes.pack.index import LayerExperts, PackIndex


class Blobs(Protocol):
    """Whatever holds the experts: yields each asked one, in order, valid until the next step: its bytes, or its slot on a card."""

    def blobs(self, layer: int, experts: Sequence[int]) -> Iterator[tuple[int, Any]]: ...


class Routed(Protocol):
    """Rows of one or more spans that go through a layer's experts: T tokens, k experts a token, H hidden."""

    @property
    def x(self) -> Tensor: ...  # [T, H]
    @property
    def experts(self) -> Tensor: ...  # int64 [T, k]
    @property
    def weights(self) -> Tensor: ...  # [T, k]
    @property
    def acc(self) -> Tensor: ...  # [T, H]: what is added to


class Experts(Protocol):
    """Runs routed experts, on whatever computes."""

    def __call__(self, out: Routed, layer: int, blobs: Blobs, first: int = 0) -> None:
        """Adds the rows' experts into out.acc, in float32, in ascending expert id. `first`: the position of row 0, for errors."""


class CpuExperts:
    """On the CPU kernels. An expert's rows run in tiles of at most `tile_rows` (None: all at once); neither tile nor neighbours
    change a row's bits."""

    def __init__(self, index: PackIndex, compute: str, tile_rows: int | None = None) -> None:
        self._index = index
        self._compute = compute
        self._tile_rows = tile_rows
        self._scratch = ExpertScratch(index.geometry)

    @torch.no_grad()
    def __call__(self, out: Routed, layer: int, blobs: Blobs, first: int = 0) -> None:
        groups, scratch, at, compute = _by_expert(out.experts.numpy()), self._scratch, self._index.layers[layer], self._compute
        x, weights, acc = out.x.numpy(), out.weights.numpy().reshape(-1), out.acc.numpy()
        for (expert, blob), (asked, choices) in zip(blobs.blobs(layer, list(groups)), groups.items(), strict=True):
            assert expert == asked, f"expert {expert} of layer {layer} came where {asked} was asked for"
            widen_expert(blob, at, scratch, compute)
            for tile in _tiles(choices, self._tile_rows):
                rows = tile // out.experts.shape[1]
                hidden = expert_hidden(_operand(x[rows], compute), scratch.gate, scratch.up)
                scatter_add(acc, rows, weights[tile], project(_operand(hidden, compute), scratch.down))


def _tiles(choices: np.ndarray, tile_rows: int | None) -> Iterator[np.ndarray]:
    step = tile_rows or choices.size
    for start in range(0, choices.size, step):
        yield choices[start : start + step]


def _by_expert(experts: np.ndarray) -> dict[int, np.ndarray]:
    """Each chosen expert, ascending, with the flat positions in experts [T, k] where it is chosen."""
    flat = experts.reshape(-1)
    order = np.argsort(flat, kind="stable")  # by expert, then by token
    ascending = flat[order]
    starts = np.flatnonzero(np.diff(ascending)) + 1
    groups = np.split(order, starts)
    return {int(flat[group[0]]): group for group in groups if group.size}


def _operand(values: np.ndarray, compute: str) -> np.ndarray:
    return values if compute == "f32" else rounded(torch.from_numpy(values), compute).numpy()


def widen_expert(blob: np.ndarray, at: LayerExperts, scratch: ExpertScratch, compute: str) -> None:
    """A blob's gate, up and down into the scratch, as operands of `compute`."""
    taken = values = 0
    for format_name, num_bytes in _runs(at):
        layout = FORMATS[format_name]
        size = num_bytes // layout.block_bytes * layout.block_values
        dequantize(blob[taken : taken + num_bytes], format_name, scratch.values[values : values + size])
        taken, values = taken + num_bytes, values + size
    if compute in HALVES:  # q8 rounds activations only
        scratch.values[:] = rounded(torch.from_numpy(scratch.values), compute).numpy()


def _runs(at: LayerExperts) -> list[tuple[str, int]]:
    """Format and bytes of a blob's parts, neighbours of one format joined: a kernel launch costs as much as a small part."""
    runs = [(at.gate, at.gate_bytes)]
    for format_name, num_bytes in ((at.up, at.up_bytes), (at.down, at.down_bytes)):
        if format_name == runs[-1][0]:
            num_bytes += runs.pop()[1]
        runs.append((format_name, num_bytes))
    return runs
