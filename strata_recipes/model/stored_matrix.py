"""The matmul over weights that stay in VRAM as stored: dequantized on the card, a tile of rows at a time, at each use.

Knows no file. Operands are rounded as `compute` says, sums are float32 (torch's, whose order is its own).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels_numba.formats import FORMATS
from strata_recipes.model.arithmetic import HALVES, rounded
from strata_recipes.model.widen import PLAIN
from strata_recipes.plan.budget import F32_BYTES


@dataclass(frozen=True)
class StoredPart:
    """`rows` x `width` values; `data` is 1-D uint8 on the device."""

    data: Tensor
    format: str
    rows: int
    width: int


class Workspace:
    """One buffer of `num_bytes` for all matrices of a model, made at its first use."""

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        self.num_values = num_bytes // F32_BYTES
        self._device = device
        self._buffer: Tensor | None = None

    def values(self, count: int, dtype: torch.dtype) -> Tensor:
        """The first `count` values of it, as `dtype`; what was there before is gone."""
        if self._buffer is None:
            self._buffer = torch.empty(self.num_values * F32_BYTES, dtype=torch.uint8, device=self._device)
        return self._buffer.view(dtype)[:count]


class StoredMatrix:
    """x weight^T for one or more stored tensors that read the same input, their rows one under the other."""

    def __init__(self, parts: Sequence[StoredPart], compute: str, workspace: Workspace) -> None:
        self.parts = tuple(parts)
        self.compute = compute
        self._workspace = workspace
        self._width = parts[0].width
        self._num_rows = sum(part.rows for part in parts)
        self._tiles = list(_tiles(parts, max(1, workspace.num_values // self._width)))

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] -> [T, out], float32."""
        half = HALVES.get(self.compute)
        operand = rounded(x, self.compute) if half is None else x.to(half)
        if len(self._tiles) == 1:
            return _product(operand, self._widened(self._tiles[0]))
        out, at = torch.empty(x.shape[0], self._num_rows, device=x.device), 0
        for tile in self._tiles:
            weight = self._widened(tile)
            out[:, at : at + weight.shape[0]] = _product(operand, weight)
            at += weight.shape[0]
        return out

    def _widened(self, tile: list[StoredPart]) -> Tensor:
        """A tile's rows [n, in] as operands: where they are stored as that already, themselves."""
        dtype = HALVES.get(self.compute, torch.float32)
        if len(tile) == 1 and tile[0].format == "F32" and dtype is torch.float32:
            return tile[0].data.view(torch.float32).view(-1, self._width)
        out, at = self._workspace.values(sum(part.rows for part in tile) * self._width, dtype), 0
        for part in tile:
            _dequantize(part, out[at : at + part.rows * self._width])
            at += part.rows * self._width
        return out.view(-1, self._width)


def _product(operand: Tensor, weight: Tensor) -> Tensor:
    if operand.dtype is torch.float32:
        return operand @ weight.t()
    return torch.mm(operand, weight.t(), out_dtype=torch.float32)


def _dequantize(part: StoredPart, out: Tensor) -> None:
    if part.format in PLAIN:
        stored = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[part.format]
        out.copy_(part.data.view(stored))
        return
    from kernels_numba.gpu.dequantize import dequantize  # numba-cuda takes a second to import, and the CPU never needs it

    dequantize(part.data, part.format, out, {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}[out.dtype])


def _tiles(parts: Sequence[StoredPart], most_rows: int) -> Iterator[list[StoredPart]]:
    """Runs of rows, at most `most_rows` each, in order; parts are cut where they are larger."""
    tile: list[StoredPart] = []
    for part in parts:
        row_bytes, first = FORMATS[part.format].row_bytes(part.width), 0
        while first < part.rows:
            room = most_rows - sum(cut.rows for cut in tile)
            rows = min(room, part.rows - first)
            tile.append(StoredPart(part.data[first * row_bytes : (first + rows) * row_bytes], part.format, rows, part.width))
            first += rows
            if rows == room:
                yield tile
                tile = []
    if tile:
        yield tile
