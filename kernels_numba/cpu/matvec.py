"""A few rows times quantized matrices on the CPU. Knows no expert and no tier.

The matrix is widened, then multiplied by the row-invariant kernel of expert_mlp.py: a row's bits depend on the row and the matrix alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kernels_numba.cpu.dequantize import dequantize
from kernels_numba.cpu.expert_mlp import project
from kernels_numba.formats import FORMATS


def matvec(x: NDArray[np.float32], matrices: Sequence[NDArray[np.uint8]], rows: NDArray[np.int32], format_name: str, num_outs: int,
           out: NDArray[np.float32]) -> None:  # fmt: skip
    """out[j, s] = W_j x[rows[j, s]]: x [R, K]; each W_j the plain blocks of [num_outs, K]; out [J, S, num_outs].

    rows int32 [J, S], -1 where a slot has none: its outputs stay as they were.
    """
    width = x.shape[1]
    FORMATS[format_name].row_bytes(width)
    weights = np.empty((num_outs, width), np.float32)
    for data, wanted, result in zip(matrices, rows, out, strict=True):
        dequantize(data, format_name, weights.reshape(-1))
        held = wanted >= 0
        result[held] = project(np.ascontiguousarray(x[wanted[held]]), weights)


def matvec_q8(codes: NDArray[np.int8], scales: NDArray[np.float32], matrices: Sequence[NDArray[np.uint8]], rows: NDArray[np.int32],
              format_name: str, num_outs: int, out: NDArray[np.float32]) -> None:  # fmt: skip
    """The same for rows of quantize_rows: x = codes * scales, rounded to float32."""
    width = codes.shape[1]
    x = codes.astype(np.float32) * np.repeat(scales, 32, axis=1)[:, :width]
    matvec(x, matrices, rows, format_name, num_outs, out)
