"""A pack's dense tensors as torch tensors, and the matmul over them. Knows no layer's arithmetic.

On the CPU they are dequantized once, at load; on a card they are views of slabs (dense_slabs.py), matrices as they are stored
(stored_matrix.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from strata_recipes.model.arithmetic import HALVES, rounded
from strata_recipes.model.stored_matrix import StoredMatrix, StoredPart, Workspace
from strata_recipes.model.widen import PLAIN, widen
from strata_recipes.pack.index import PackIndex
from strata_recipes.pack.layout import dense_wanted

_WIDENED = 1 << 22  # values of a half-precision matrix that are float32 at once: 16 MiB
CPU = torch.device("cpu")
Linear = Callable[[Tensor], Tensor]  # x [T, in] -> [T, out], float32
Placed = Mapping[str, Tensor]  # uint8 views of slabs


class PackLike(Protocol):
    """What the model reads of a pack."""

    @property
    def index(self) -> PackIndex: ...
    def dense(self, name: str) -> tuple[np.ndarray, str, tuple[int, ...]]: ...
    def ngram_rows(self, rows: np.ndarray) -> tuple[np.ndarray, str]: ...


class Matrix:
    """x weight^T with the operands rounded as `compute` says, summed in float32. Halves stay halves in memory."""

    def __init__(self, weight: Tensor, compute: str) -> None:
        self._compute = compute
        self._weight = weight.to(HALVES[compute]) if compute in HALVES else weight

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] -> [T, out], float32."""
        operand = rounded(x, self._compute)
        if self._weight.dtype is torch.float32:
            return functional.linear(operand, self._weight)
        rows = max(1, _WIDENED // self._weight.shape[1])
        return torch.cat([functional.linear(operand, part.to(torch.float32)) for part in torch.split(self._weight, rows)], dim=1)


class Weights:
    """A pack's dense tensors by name, for one layer (`prefix` "blk.N.") or for the whole model.

    `placed`: the card's views by full name, with the workspace of their matmuls; None on the CPU, where they are loaded here.
    """

    def __init__(
        self, pack: PackLike, compute: str, prefix: str = "", placed: Placed | None = None, workspace: Workspace | None = None
    ) -> None:
        self._pack = pack
        self._compute = compute
        self._prefix = prefix
        self._placed = placed
        self._workspace = workspace
        self._exact = {wanted.name for wanted in dense_wanted(pack.index.geometry) if wanted.exact}

    def layer(self, layer: int) -> Weights:
        return Weights(self._pack, self._compute, f"blk.{layer}.", self._placed, self._workspace)

    def tensor(self, name: str) -> Tensor:
        """Float32 values in the stored shape."""
        data, format_name, shape = self._pack.dense(self._prefix + name)
        if self._placed is not None:
            return self._placed[self._prefix + name].view(torch.float32).view(shape)
        return torch.from_numpy(widen(data, format_name).reshape(shape))

    def matrix(self, *names: str) -> Linear:
        """Tensors that read the same input, stacked into one matmul.

        Tensors that the layout calls exact (router, indexer) are never rounded; under q8 activations are rounded where a
        tensor of the stack is stored quantized.
        """
        if self._workspace is not None:
            return StoredMatrix([self._stored(name) for name in names], self._arithmetic(names), self._workspace)
        stack = torch.cat([self.tensor(name) for name in names]) if len(names) > 1 else self.tensor(names[0])
        return Matrix(stack, self._arithmetic(names))

    def _stored(self, name: str) -> StoredPart:
        assert self._placed is not None, "a workspace comes with places"
        _, format_name, (rows, width) = self._pack.dense(self._prefix + name)
        return StoredPart(self._placed[self._prefix + name], format_name, rows, width)

    def _arithmetic(self, names: tuple[str, ...]) -> str:
        full = [self._prefix + name for name in names]
        if any(name in self._exact for name in full):
            return "f32"
        quantized = any(self._pack.dense(name)[1] not in PLAIN for name in full)
        return self._compute if quantized or self._compute != "q8" else "f32"
