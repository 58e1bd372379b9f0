"""float32 rows to int8 with one float32 scale for 32 values, on the CPU. Knows no weights."""

from __future__ import annotations

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

GROUP = 32


def quantize_rows(x: NDArray[np.float32], codes: NDArray[np.int8], scales: NDArray[np.float32]) -> None:
    """x [R, K] -> codes int8 [R, K], scales float32 [R, ceil(K / 32)], bit for bit reference_ops.quantize_rows."""
    rows, width = x.shape
    if codes.shape != x.shape or scales.shape != (rows, -(-width // GROUP)):
        raise ValueError(f"codes {codes.shape} and scales {scales.shape} for {x.shape}")
    if x.size:
        _quantize(x, codes, scales)


@njit(parallel=True, error_model="numpy")
def _quantize(x, codes, scales):  # type: ignore[no-untyped-def]
    for row in prange(x.shape[0]):
        for group in range(scales.shape[1]):
            start, stop = group * GROUP, min((group + 1) * GROUP, x.shape[1])
            largest = np.float32(0)
            for i in range(start, stop):
                size = abs(x[row, i])
                if size > largest or np.isnan(size):
                    largest = size
            scale = largest / np.float32(127)
            scales[row, group] = scale
            for i in range(start, stop):
                code = np.rint(x[row, i] / scale)
                whole = scale > 0 and not np.isnan(code)
                codes[row, i] = np.int8(min(max(code, np.float32(-127)), np.float32(127))) if whole else np.int8(0)
