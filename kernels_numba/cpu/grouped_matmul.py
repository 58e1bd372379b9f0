"""Sorted rows times their experts' quantized matrices on the CPU: gate and up with SiLU between them, and down. Knows no tier.

A row's bits depend on the row and its expert alone. compute "bf16" and "f16" round operands, "q8" activations alone
(quantize_rows.py); products and sums stay float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kernels_numba.cpu.dequantize import dequantize
from kernels_numba.cpu.expert_mlp import expert_hidden, project
from kernels_numba.reference_ops import rounded, rounded_weights

Floats = NDArray[np.float32]
Matrix = tuple[NDArray[np.uint8], str]  # plain blocks and their format


def grouped_gate_up(
    x: Floats, counts: NDArray[np.int64], gates: Sequence[Matrix], ups: Sequence[Matrix], out: Floats, compute: str
) -> None:
    """out[i] = silu(x[i] gate^T) * (x[i] up^T), rounded to `compute`: x [R, K] sorted, counts [G] rows of each group, out [R, I]."""
    operand, start = rounded(x, compute), 0
    for count, gate, up in zip(counts, gates, ups, strict=True):
        if count:
            shape = out.shape[1], x.shape[1]
            hidden = expert_hidden(operand[start : start + count], _widened(gate, shape, compute), _widened(up, shape, compute))
            out[start : start + count] = rounded(hidden, compute)
        start += int(count)


def grouped_down(x: Floats, counts: NDArray[np.int64], downs: Sequence[Matrix], out: Floats, compute: str) -> None:
    """out[i] = x[i] down^T: x [R, I] sorted, counts [G], out float32 [R, H]."""
    operand, start = rounded(x, compute), 0
    for count, down in zip(counts, downs, strict=True):
        if count:
            out[start : start + count] = project(operand[start : start + count], _widened(down, (out.shape[1], x.shape[1]), compute))
        start += int(count)


def _widened(matrix: Matrix, shape: tuple[int, int], compute: str) -> Floats:
    weights = np.empty(shape, np.float32)
    dequantize(matrix[0], matrix[1], weights.reshape(-1))
    return rounded_weights(weights, compute)
