"""Router scores that a top-k could get wrong."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# below, at and above the sizes that a block of 32, 64, 128, 256, 512 or 1,024 threads covers
EXPERTS = [1, 2, 3, 31, 33, 60, 64, 65, 127, 129, 257, 300, 513, 1025]


def score_rows(experts: int, seed: int) -> NDArray[np.float32]:
    """[14, E]: random, tied, all equal, infinite, signed zeros, NaN in one, some and all places, best at the ends."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((14, experts)).astype(np.float32)
    rows[1] = np.round(rows[1])  # many ties
    rows[2] = 0.25
    rows[3] = -np.inf
    rows[4, : experts // 2] = np.inf
    rows[5] = np.where(rows[5] > 0, 0.0, -0.0)
    rows[6, experts // 2] = np.nan
    rows[7, ::2] = np.nan
    rows[8] = np.nan
    rows[9, 0] = 9
    rows[10, -1] = 9
    rows[11] = np.float32(1e-45) * np.arange(experts)  # denormals
    rows[12] = np.nextafter(np.float32(1), np.float32(2)) - (np.arange(experts) % 2).astype(np.float32) * np.float32(2**-23)
    rows[13, min(255, experts - 1)] = 7
    return rows
