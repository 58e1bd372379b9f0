"""Attention of a few consecutive tokens over selected blocks of earlier ones, on the GPU: one token's work on many multiprocessors.

A token's list of keys is cut into parts of 32, which attention_part makes; a second launch puts them together in their order.
Positions are read on the device, grids are for the longest list, and blocks of threads whose part is empty return at once. All
arithmetic is float32.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import float32

from kernels_numba.device import WIDE, Kernel, address, cuda, inline
from kernels_numba.gpu.attention_part import MAX_DIM, MAX_HEADS, PART, list_of, part_kernel
from kernels_numba.gpu.kv_cells import kv_cache, num_heads
from kernels_numba.gpu.kv_codes import rotator
from kernels_numba.gpu.warp import lane_sum, warp_highest
from kernels_numba.kv_formats import KV_FORMATS
from kernels_numba.ptx import (
    add,
    divide,
    fused,
    load_float,
    load_float4,
    load_long,
    load_shared_float4,
    multiply,
    reload_float,
    store_float,
    store_float4,
)  # fmt: skip

_THREADS = 128
_SLICE = 64  # values of a head that a block of threads puts together: 16 times four, of eight parts at a time
_STRETCHES = 8
_SLICE_SUMS = _STRETCHES * _SLICE
_ZERO, _ONE, _NOTHING = np.float32(0), np.float32(1), np.float32(-np.inf)
_warp_sum = lane_sum(32)


def attention_scratch(rows: int, query_heads: int, dim: int, context: int, num_chosen: int, block: int) -> int:
    """float32 values that `partial` of attention_decode holds: of each part the weighted values, the highest score and the weights' sum."""
    return rows * query_heads * _num_parts(context, num_chosen, block) * (dim + 2)


def attention_decode(
    query: Any, keys: Any, values: Any, chosen: Any, heads: Any, block: int, position: Any, partial: Any, out: Any, stream: int = 0
) -> None:
    """out[r] = sigmoid(gates of row r) * softmax(query[r] . keys) values over what the token at position + r reads.

    query float32 [R, Q, D] (scaled); keys, values [K, context, D]; chosen int32 [R, b], heads float32 [R, (2 Q + 2 K) D] with the gates
    as attention_inputs has them, position int64 [1], out [R, Q * D]. A row reads its chosen blocks and what comes after its last whole
    one, as selected_attention has it; `chosen` is not checked. partial: float32 [attention_scratch(..)] or longer, overwritten. D is a
    multiple of 8, at most 256; at most 16 query heads a kv head. Against exact arithmetic: relative L2 below 1e-5.
    """
    (rows, count, dim), kv_heads, picked = (int(size) for size in query.shape), num_heads(keys), int(chosen.shape[1])
    group = count // max(1, kv_heads)
    if dim % 8 or dim > MAX_DIM or group > MAX_HEADS or group * kv_heads != count or picked < 1:
        raise ValueError(f"{count} query heads of {dim} values on {kv_heads} kv heads, {picked} blocks: wanted at least 1, at most "
                         f"{MAX_HEADS} a kv head, and a multiple of 8 to {MAX_DIM}")  # fmt: skip
    cache = kv_cache(keys, values, kv_heads, dim)
    parts, scratch = _num_parts(cache.context, picked, block), attention_scratch(rows, count, dim, cache.context, picked, block)
    if int(partial.shape[0]) < scratch:
        raise ValueError(f"partial holds {partial.shape[0]} values: wanted {scratch}")
    asked, made = address("query", query, "float32", (rows, count, dim)), address("partial", partial, "float32", (-1,))
    picks, place = address("chosen", chosen, "int32", (rows, picked)), address("position", position, "int64", (1,))
    gates = address("heads", heads, "float32", (rows, (2 * count + 2 * kv_heads) * dim))
    target = address("out", out, "float32", (rows, count * dim))
    if any(pointer % 16 for pointer in (asked, made, gates, target)):
        raise ValueError("query, partial, heads and out must start at multiples of 16 bytes")
    stats = made + rows * count * parts * dim * 4
    cells = cache.keys, cache.values, cache.far_keys, cache.far_values, cache.resident
    part_kernel(group, dim, cache.kv_format, block, cache.is_split).launch(
        rows * kv_heads * parts, stream, asked, *cells, picks, place, made, stats, cache.context, kv_heads, picked, parts
    )
    rotates = KV_FORMATS[cache.kv_format].rotation(dim) > 1
    gather_kernel(dim, block, not rotates).launch(
        rows * count * -(-dim // _SLICE), stream, made, stats, gates, place, target, count, kv_heads, picked, parts
    )
    if rotates:
        back_kernel(dim, cache.kv_format).launch(rows * count, stream, gates, target, count, kv_heads)


def _num_parts(context: int, num_chosen: int, block: int) -> int:
    """Of the longest list: the chosen blocks and a tail that is no whole one; or as many tokens where all are read."""
    return -(-min(context, (num_chosen + 1) * block - 1) // PART)


@functools.cache
def gather_kernel(dim: int, block: int, opens: bool) -> Kernel:
    """A block of threads a row's head and 64 of its values: 16 threads four values each, eight parts at a time. `opens`: the gates."""
    slices, keys_of = -(-dim // _SLICE), list_of(block)

    def gather(partial, stats, heads, position, out, count, kv_heads, picked, parts):  # type: ignore[no-untyped-def]
        sums = cuda.shared.array(_SLICE_SUMS, float32, WIDE)
        thread, unit = np.int32(cuda.threadIdx.x), np.int64(cuda.blockIdx.x)
        lane, across, stretch = thread & 31, (thread & 15) * 4, thread >> 4
        head = unit // slices  # of all rows
        row, column = head // count, (unit - head * slices) * _SLICE + across
        last = load_long(position) + row
        selected, tail = keys_of(last, picked)
        used = np.int32((selected + last + 1 - tail + PART - 1) // PART)
        stats_at, partial_at = stats + head * parts * 8, partial + (head * parts * dim + min(column, dim - 4)) * 4
        peak = _NOTHING
        for part in range(lane, used, 32):
            peak = max(peak, load_float(stats_at + part * 8))
        peak = warp_highest(peak)
        total = _ZERO
        for part in range(lane, used, 32):
            total = fused(_exp(load_float(stats_at + part * 8) - peak), load_float(stats_at + part * 8 + 4), total)
        total = _warp_sum(total)
        a, b, c, d = _ZERO, _ZERO, _ZERO, _ZERO
        for part in range(stretch, used, _STRETCHES):
            v, scale = load_float4(partial_at + part * np.int64(dim * 4)), _exp(load_float(stats_at + part * 8) - peak)
            a, b, c, d = fused(scale, v[0], a), fused(scale, v[1], b), fused(scale, v[2], c), fused(scale, v[3], d)
        at = stretch * _SLICE + across
        sums[at], sums[at + 1], sums[at + 2], sums[at + 3] = a, b, c, d
        cuda.syncthreads()
        if thread < 16 and column < dim:
            for i in range(1, _STRETCHES):
                v = load_shared_float4(sums, i * _SLICE + across)
                a, b, c, d = add(a, v[0]), add(b, v[1]), add(c, v[2]), add(d, v[3])
            if not opens:
                at = out + (head * dim + column) * 4
                store_float4(at, divide(a, total), divide(b, total), divide(c, total), divide(d, total))
            else:
                gate = load_float4(heads + ((row * (2 * count + 2 * kv_heads) + 2 * (head - row * count) + 1) * dim + column) * 4)
                store_float4(out + (head * dim + column) * 4, _opened(a, total, gate[0]), _opened(b, total, gate[1]),
                             _opened(c, total, gate[2]), _opened(d, total, gate[3]))  # fmt: skip

    return Kernel(gather, "i64 i64 i64 i64 i64 i64 i64 i64 i64", _THREADS)


@functools.cache
def back_kernel(dim: int, kv_format: str) -> Kernel:
    """A warp a row's head: what was read of rotated values is rotated back, then gated."""
    rotate = rotator(kv_format, dim)

    def rotate_back(heads, out, count, kv_heads):  # type: ignore[no-untyped-def]
        shared = cuda.shared.array(dim, float32, WIDE)
        lane, head = np.int32(cuda.threadIdx.x), np.int64(cuda.blockIdx.x)
        row = head // count
        gates = heads + (row * (2 * count + 2 * kv_heads) + 2 * (head - row * count) + 1) * (dim * 4)
        for i in range(lane, dim, 32):
            shared[i] = reload_float(out + (head * dim + i) * 4)
        rotate(shared, 0, lane)
        for i in range(lane, dim, 32):
            store_float(out + (head * dim + i) * 4, _opened(shared[i], _ONE, load_float(gates + i * 4)))

    return Kernel(rotate_back, "i64 i64 i64 i64", 32)


@inline
def _exp(value):  # type: ignore[no-untyped-def]
    return np.float32(math.exp(value))


@inline
def _opened(value, total, gate):  # type: ignore[no-untyped-def]
    """value / total * sigmoid(gate)."""
    return multiply(divide(value, total), divide(_ONE, _ONE + _exp(-gate)))
