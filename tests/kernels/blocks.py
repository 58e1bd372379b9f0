"""Random but valid blocks for the format tests: any bytes are, as long as the float16 scales are finite."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernels_numba.formats import FORMATS

# denormal, smallest normal, zero of both signs, largest
EDGES = np.array([6e-8, -6e-8, 3.05e-5, 6.1e-5, 0.0, -0.0, 65504.0, -65504.0, 1.0], np.float16)


def random_blocks(name: str, count: int, seed: int) -> NDArray[np.uint8]:
    """`count` blocks as flat bytes; the first ones have edge scales."""
    form, rng = FORMATS[name], np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (count, form.block_bytes), dtype=np.uint8)
    if name == "F32":
        return rng.standard_normal(count).astype(np.float32).view(np.uint8)
    if name == "BF16":
        return (rng.standard_normal(count).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    at = 0
    for field, size in form.fields:
        if field in ("d", "dmin", "value"):
            scales = rng.standard_normal(count).astype(np.float16)
            scales[: len(EDGES)] = EDGES[:count]
            blocks[:, at : at + size] = scales.reshape(-1, 1).view(np.uint8)
        at += size
    return blocks.reshape(-1)
