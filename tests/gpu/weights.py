"""Random matrices in every format, on the device, with their float32 values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels_numba import reference
from kernels_numba.device import address, to_device
from kernels_numba.formats import FORMATS
from kernels_numba.repack import repack

BOTH = [False, True]  # plain, planar


@dataclass(frozen=True)
class Blobs:
    """`count` blobs, each of one matrix after `offset` bytes of filling."""

    device: list[Any]  # kept: the table holds their addresses
    table: Any
    values: list[NDArray[np.float32]]


def blobs(format_name: str, count: int, num_outs: int, width: int, planar: bool, offset: int = 0, seed: int = 0) -> Blobs:
    """Random ones, their scales such that sums stay near 1."""
    made, values = [], []
    for i in range(count):
        data = matrix(format_name, num_outs, width, seed * 1000 + i)
        values.append(reference.dequantize(data, format_name).reshape(num_outs, width))
        stored = repack(data, format_name) if planar else data
        made.append(to_device(np.concatenate([np.full(offset, 0xA5, np.uint8), stored])))
    table = to_device(np.array([address("blob", blob, "uint8", (-1,)) for blob in made], np.int64))
    return Blobs(made, table, values)


def matrix(format_name: str, num_outs: int, width: int, seed: int) -> NDArray[np.uint8]:
    """Plain blocks of a random matrix."""
    form, rng = FORMATS[format_name], np.random.default_rng(seed)
    count = num_outs * width // form.block_values
    values = rng.standard_normal(count).astype(np.float32)
    if format_name in ("F32", "F16"):
        return values.astype({"F32": np.float32, "F16": np.float16}[format_name]).view(np.uint8)
    if format_name == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    blocks = rng.integers(0, 256, (count, form.block_bytes), dtype=np.uint8)
    at = 0
    for field, size in form.fields:
        if field in ("d", "dmin"):
            blocks[:, at : at + 2] = (0.01 * values).astype(np.float16).reshape(-1, 1).view(np.uint8)
        at += size
    return blocks.reshape(-1)
