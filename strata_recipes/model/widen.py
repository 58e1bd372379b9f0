"""Stored bytes of any format as float32 values, on the CPU."""

from __future__ import annotations

import numpy as np

from kernels_numba import reference
from kernels_numba.cpu.dequantize import dequantize
from kernels_numba.formats import FORMATS

PLAIN = ("F32", "F16", "BF16")


def widen(data: np.ndarray, format_name: str) -> np.ndarray:
    """Stored bytes (1-D uint8) as 1-D float32."""
    if format_name in PLAIN:  # numpy widens these as fast as a kernel would, and nothing is compiled for them
        return reference.dequantize(data, format_name)
    layout = FORMATS[format_name]
    out = np.empty(data.size // layout.block_bytes * layout.block_values, np.float32)
    dequantize(data, format_name, out)
    return out
