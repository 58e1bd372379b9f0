"""Rows of keys or values into the cells of a KV cache, rounded as its format says, on the GPU. Knows no attention."""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32

from kernels_numba.device import Kernel, address, cuda
from kernels_numba.gpu.kv_cells import cell_array, kv_cells
from kernels_numba.ptx import load_float


def kv_store(rows: Any, cells: Any, start: int, stream: int = 0) -> None:
    """rows float32 [T, K, D] -> the cells of tokens start .. start + T of an array of K kv heads, bit for bit reference_kv.encode.

    D is a multiple of 8. A token's cell depends on its row alone.
    """
    tokens, heads, dim = (int(size) for size in rows.shape)
    into = cell_array("cells", cells, heads, dim)
    if start < 0 or start + tokens > into.context:
        raise ValueError(f"rows of positions {start} to {start + tokens} for a context of {into.context}")
    source = address("rows", rows, "float32", (tokens, heads, dim))
    kernel = store_kernel(into.kv_format, dim, into.far != 0)
    kernel.launch(tokens * heads, stream, source, into.at, into.far, into.resident, heads, into.context, start)


@functools.cache
def store_kernel(kv_format: str, dim: int, is_split: bool) -> Kernel:
    """A warp a row, so that one token's are neighbours."""
    cells = kv_cells(kv_format, dim, is_split)
    array, place, store = cells.array, cells.place, cells.store

    def store_rows(rows, near, far, resident, heads, context, start):  # type: ignore[no-untyped-def]
        row = cuda.shared.array(dim, float32)
        lane, unit = np.int32(cuda.threadIdx.x), np.int64(cuda.blockIdx.x)
        token = unit // heads
        for i in range(lane, dim, 32):
            row[i] = load_float(rows + (unit * dim + i) * 4)
        cuda.syncthreads()
        store(place(array(near, far, resident), context, unit - token * heads, start + token), row, np.int32(0), lane)

    return Kernel(store_rows, "i64 i64 i64 i64 i64 i64 i64", 32)
