"""A matmul of a few rows over matrices as they are stored, on kernels that a graph can capture. Knows no layer.

Rows are float32, or 8-bit where the arithmetic is q8 and the matrix is stored quantized.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from kernels_numba.endings import Columns, Ending
from strata_recipes.model.reply_buffers import ReplyBuffers
from strata_recipes.model.stored_matrix import PLAIN, StoredPart


class Stored(Protocol):
    """A matrix as it is stored."""

    @property
    def parts(self) -> Sequence[StoredPart]: ...
    @property
    def compute(self) -> str: ...


@dataclass(frozen=True)
class StoredVector:
    """One row of float32, which is never rounded."""

    data: Tensor
    compute: str = "f32"

    @property
    def parts(self) -> tuple[StoredPart]:
        return (StoredPart(self.data.view(-1).view(torch.uint8), "F32", 1, self.data.numel()),)


class Projection:
    """x W^T over the parts of one or more matrices, their rows one under the other; parts of one format go in one launch."""

    def __init__(self, ops: Any, buffers: ReplyBuffers, *matrices: Stored, beside: str = "") -> None:
        """`beside`: "side_" for what runs beside the others, and rounds its rows in buffers of its own."""
        self._ops, self._buffers, self._beside = ops, buffers, beside
        self._parts = [part for matrix in matrices for part in matrix.parts]
        self._eight_bit = any(matrix.compute == "q8" for matrix in matrices)
        self._launches: list[tuple[Any, int]] = []
        first = 0
        for format_name, group in groupby(self._parts, lambda part: part.format):
            parts = list(group)
            self._launches.append((_stack(ops, parts, format_name), first))
            first += sum(part.rows for part in parts)
        self.num_outs = first

    def __call__(self, x: Tensor, out: Tensor, stream: int) -> None:
        """x [R, K] -> out [R, num_outs], both with room for the buffers' product rows."""
        self.to(Columns(out), x, stream)

    def to(self, ending: Ending, x: Tensor, stream: int) -> None:
        """x [R, K] -> what the ending makes of its sums, whose arrays have that room too."""
        whole = self._buffers.for_product
        ending = ending.changed(whole)
        coded = self._coded(x, stream) if self._eight_bit else None
        for stack, first in self._launches:
            if coded and stack.format_name not in PLAIN:
                self._ops.dense_matvec_q8(*(whole(part) for part in coded), stack, ending.after(first), stream)
            else:
                self._ops.dense_matvec(whole(x), stack, ending.after(first), stream)

    def _coded(self, x: Tensor, stream: int) -> tuple[Tensor, Tensor] | None:
        """x as 8-bit rows; None where its width has no whole groups of 32: those matrices take float32 rows."""
        return eight_bit(self._ops, self._buffers, x, stream, self._beside) if x.shape[1] % 32 == 0 else None


def eight_bit(ops: Any, buffers: ReplyBuffers, x: Tensor, stream: int, beside: str = "") -> tuple[Tensor, Tensor]:
    """x [R, K], K a multiple of 32, as codes [R, K] and scales [R, K / 32], in buffers that the next call overwrites."""
    rows, width = x.shape
    codes = buffers[f"{beside}codes"][: rows * width].view(rows, width)
    scales = buffers[f"{beside}scales"][: rows * width // 32].view(rows, width // 32)
    ops.quantize_rows(x, codes, scales, stream)
    return codes, scales


def _stack(ops: Any, parts: Iterable[StoredPart], format_name: str) -> Any:
    parts = list(parts)
    device = parts[0].data.device
    table = torch.tensor([part.data.data_ptr() for part in parts], dtype=torch.int64, device=device)
    ends = torch.from_numpy(np.cumsum([part.rows for part in parts]).astype(np.int32)).to(device)
    return ops.Stack(table, ends, sum(part.rows for part in parts), format_name, parts[0].width)
