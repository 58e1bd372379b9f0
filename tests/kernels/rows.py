"""Rows of activations that a quantizer could get wrong."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def edge_rows() -> NDArray[np.float32]:
    """[10, 64]: zeros, ties to even, denormals, huge, one NaN, one infinity, one value, all equal."""
    rows = np.zeros((10, 64), np.float32)
    rows[1, :5] = [127, 0.5, 1.5, 2.5, -0.5]  # scale 1: ties
    rows[2] = np.float32(1e-44)
    rows[3, :2] = [3.0e38, -3.0e38]
    rows[4] = np.linspace(-1, 1, 64)
    rows[4, 7] = np.nan
    rows[5] = np.linspace(-1, 1, 64)
    rows[5, 40] = -np.inf
    rows[6, 33] = -2.0
    rows[7] = 0.1
    rows[8] = -0.0
    rows[9, :3] = [2.7e-43, 1e-44, -2.7e-43]  # scales that are denormal
    return rows


def kv_rows(count: int, dim: int, seed: int = 5) -> NDArray[np.float32]:
    """Keys or values: normal, a few outliers, some exact zeros."""
    rng = np.random.default_rng(seed + dim)
    rows = rng.standard_normal((count, dim))
    return (rows * np.where(rng.random(rows.shape) < 0.02, 20, 1) * (rng.random(rows.shape) > 0.05)).astype(np.float32)
