"""Queries, keys and values of a few consecutive tokens from what their matrices gave, on the GPU: normed, turned, stored as kv cells."""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32

from kernels_numba.device import WIDE, Kernel, address, cuda
from kernels_numba.gpu.kv_cells import kv_cache, kv_cells, num_heads
from kernels_numba.gpu.turned_heads import head_loader, head_norm, head_turn, lane_values
from kernels_numba.ptx import load_long, multiply, store_float


def attention_inputs(
    heads: Any, q_norm: Any, k_norm: Any, eps: float, frequencies: Any, position: Any, query: Any, keys: Any, values: Any, stream: int = 0
) -> None:
    """query = the queries of heads, normed, turned, times D^-0.5; keys, normed and turned, and values into cells position + r.

    heads float32 [R, (2 Q + 2 K) D]: Q times a query and its gate, K keys, K values; q_norm, k_norm [D]; frequencies [F <= D / 2];
    position int64 [1], read on the device: position + R must not pass the context. query [R, Q, D], rotated where the format rotates;
    keys, values: cells of [K, context], as kv_cells.py has them. D is a multiple of 8.
    """
    (rows, count, dim), kv_heads, half = (int(size) for size in query.shape), num_heads(keys), int(frequencies.shape[0])
    if 2 * half > dim:
        raise ValueError(f"{2 * half} values turned of heads of {dim}")
    cache = kv_cache(keys, values, kv_heads, dim)
    pointers = (
        address("heads", heads, "float32", (rows, (2 * count + 2 * kv_heads) * dim)),
        address("q_norm", q_norm, "float32", (dim,)),
        address("k_norm", k_norm, "float32", (dim,)),
        address("frequencies", frequencies, "float32", (half,)),
        address("position", position, "int64", (1,)),
        address("query", query, "float32", (rows, count, dim)),
    )
    kernel = inputs_kernel(dim, half, cache.kv_format, cache.is_split)
    places = cache.keys, cache.values, cache.far_keys, cache.far_values, cache.resident
    kernel.launch(rows * (count + 2 * kv_heads), stream, *pointers, *places, cache.context, count, kv_heads, eps)


@functools.cache
def inputs_kernel(dim: int, half: int, kv_format: str, is_split: bool) -> Kernel:
    """A warp a row's query, key or value head."""
    own, root = lane_values(dim), np.float32(dim**-0.5)
    load, norm, turn, cells = head_loader(dim), head_norm(dim), head_turn(half), kv_cells(kv_format, dim, is_split)
    array, place, store, rotate = cells.array, cells.place, cells.store, cells.rotate

    def make_head(  # type: ignore[no-untyped-def]
        heads,
        q_norm,
        k_norm,
        frequencies,
        position,
        query,
        near_keys,
        near_values,
        far_keys,
        far_values,
        resident,
        context,
        count,
        kv_heads,
        eps,
    ):
        shared = cuda.shared.array(dim, float32, WIDE)
        lane, unit = np.int32(cuda.threadIdx.x), np.int64(cuda.blockIdx.x)
        row = unit // (count + 2 * kv_heads)
        head = unit - row * (count + 2 * kv_heads)  # of the queries, then of the keys, then of the values
        part = 2 * head if head < count else count + head  # a gate stands after each query
        cell = load_long(position) + row
        held = cuda.local.array(own, np.float32)
        load(heads + (row * (2 * count + 2 * kv_heads) + part) * (dim * 4), held, lane)
        if head < count + kv_heads:
            norm(held, q_norm if head < count else k_norm, eps, shared, lane)
            cuda.syncthreads()
            turn(shared, frequencies, cell, lane)
        else:
            for i in range(own):
                if lane + 32 * i < dim:
                    shared[lane + 32 * i] = held[i]
        cuda.syncthreads()
        if head < count:
            for i in range(lane, dim, 32):
                shared[i] = multiply(shared[i], root)
            rotate(shared, 0, lane)
            for i in range(lane, dim, 32):
                store_float(query + ((row * count + head) * dim + i) * 4, shared[i])
        elif head < count + kv_heads:
            store(place(array(near_keys, far_keys, resident), context, head - count, cell), shared, 0, lane)
        else:
            store(place(array(near_values, far_values, resident), context, head - count - kv_heads, cell), shared, 0, lane)

    return Kernel(make_head, "i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 f32", 32)
