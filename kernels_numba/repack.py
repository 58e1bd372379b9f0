"""Planar order of a tensor's blocks, and back: each field of all blocks lies together, so that a thread can load 16 bytes.

A planar tensor has the same size as a plain one. Pure functions; knows no blob of several tensors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernels_numba.formats import FORMATS

Bytes = NDArray[np.uint8]


def repack(data: Bytes, format_name: str) -> Bytes:
    """Whole plain blocks (uint8, one axis) in planar order, as a new array."""
    blocks = _blocks(data, format_name)
    starts = _starts(format_name)
    return np.concatenate([blocks[:, starts[name] : starts[name] + size].reshape(-1) for name, size in FORMATS[format_name].planes])


def unpack(data: Bytes, format_name: str) -> Bytes:
    """The inverse of `repack`."""
    out = np.empty_like(_blocks(data, format_name))
    starts, at = _starts(format_name), 0
    for name, size in FORMATS[format_name].planes:
        out[:, starts[name] : starts[name] + size] = data[at : at + size * len(out)].reshape(len(out), size)
        at += size * len(out)
    return out.reshape(-1)


def _blocks(data: Bytes, format_name: str) -> Bytes:
    size = FORMATS[format_name].block_bytes
    if data.dtype != np.uint8 or data.ndim != 1 or data.size % size:
        raise ValueError(f"{data.dtype} of shape {data.shape} is not whole {format_name} blocks of {size} bytes")
    return data.reshape(-1, size)


def _starts(format_name: str) -> dict[str, int]:
    found, at = {}, 0
    for name, size in FORMATS[format_name].fields:
        found[name] = at
        at += size
    return found
