"""Attention of query heads that share a kv head, each token over its own blocks of earlier tokens, on the GPU. Knows no index.

A block of threads makes one token's heads of one kv head, 64 keys at a time, with a running softmax. Keys and values go from device
memory to registers once for all those heads: nothing is gathered, and no n x n mask is made. All arithmetic is float32.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import float32, int32

from kernels_numba.device import Kernel, address, cuda, inline
from kernels_numba.gpu.kv_cells import Cells, kv_cache, kv_cells
from kernels_numba.gpu.warp import lane_sum, quarter_sum, warp_highest
from kernels_numba.ptx import (
    add,
    divide,
    fused,
    load_float4,
    load_int,
    load_shared_float4,
    multiply,
    store_float2,
)  # fmt: skip

_THREADS = 128
_TILE = 64  # keys scored between two barriers: 16 a warp, two a lane and its three neighbours at the same keys
_MAX_HEADS, _MAX_DIM = 16, 256
_PLACES, _SCALES = 2 * _TILE, 2 * _MAX_HEADS
_ZERO, _NOTHING = np.float32(0), np.float32(-np.inf)
_warp_sum = lane_sum(32)


def selected_attention(query: Any, keys: Any, values: Any, chosen: Any, block: int, start: int, out: Any, stream: int = 0) -> None:
    """out[:, t] = softmax(query[:, t] . keys) values over what the token at position start + t reads.

    query (scaled), out: float32 [K, T, G, D]; keys, values: cells of [K, context], as kv_cells.py has them. Of a format that rotates
    the query is rotated already, and what comes out still. `chosen`: int32 or int64 [T, b], ids of whole blocks of `block` tokens up
    to the query, ascending, as select_blocks makes them; not checked. A token reads these and all after its last whole block; one that
    has at most b whole blocks reads every token up to itself, whatever its row of `chosen` says. chosen None: every token does.
    D is a multiple of 32, at most 256; G at most 16.

    A row's bits depend on its query, its position and what it reads alone. Against exact arithmetic: relative L2 below 1e-5.
    """
    heads, tokens, group, dim = (int(size) for size in query.shape)
    if dim % 32 or dim > _MAX_DIM or group > _MAX_HEADS:
        raise ValueError(f"{group} query heads a kv head of {dim} values: wanted at most {_MAX_HEADS}, and a multiple of 32 to {_MAX_DIM}")
    cache, rows = kv_cache(keys, values, heads, dim), (heads, tokens, group, dim)
    if start < 0 or start + tokens > cache.context:
        raise ValueError(f"queries at positions {start} to {start + tokens} of a context of {cache.context}")
    query_at, out_at = address("query", query, "float32", rows), address("out", out, "float32", rows)
    if query_at % 16 or out_at % 16:
        raise ValueError("query and out must start at multiples of 16 bytes")
    row, count, id_bytes = _choice(chosen, tokens, cache.context)
    kernel = attention_kernel(group, dim, cache.kv_format, block, id_bytes, cache.is_split)
    pointers = query_at, cache.keys, cache.values, cache.far_keys, cache.far_values, cache.resident, out_at
    kernel.launch(heads * tokens, stream, *pointers, row, tokens, cache.context, start, count)


def _choice(chosen: Any, tokens: int, context: int) -> tuple[int, int, int]:
    """Address, blocks a token and bytes an id."""
    if chosen is None:
        return 0, context, 4
    id_type = str(chosen.dtype).removeprefix("torch.")
    if id_type not in ("int32", "int64"):
        raise ValueError(f"chosen is {id_type}: wanted int32 or int64")
    return address("chosen", chosen, id_type, (tokens, -1)), int(chosen.shape[1]), int(id_type[3:]) // 8


@functools.cache
def attention_kernel(group: int, dim: int, kv_format: str, block: int, id_bytes: int, is_split: bool) -> Kernel:
    """A block of threads a token and kv head: the kv head changes slowest, so that neighbours meet in the cache."""
    steps, pairs = dim // 32, dim // 2
    cells = kv_cells(kv_format, dim, is_split)
    array, place, eight = cells.array, cells.place, cells.eight
    token_of, score, weigh = _token_of(block, id_bytes), _score(group, dim), _weigh(group, cells)
    rounds = -(-group // 4)  # heads whose softmax a warp does
    head_values, share_values, sum_values = group * dim, 2 * group * _TILE, 2 * group

    def attend(query, near_keys, near_values, far_keys, far_values, resident, out, chosen, tokens, context, start, count):  # type: ignore[no-untyped-def]
        heads = cuda.shared.array(head_values, float32)  # one declaration a line: the simulator names arrays by line
        shares = cuda.shared.array(share_values, float32)  # scores, then weights; two tiles in turn
        places = cuda.shared.array(_PLACES, int32)  # the tokens of a tile's keys
        scales = cuda.shared.array(_SCALES, float32)  # of the sums so far, a tile later; after them the sums of weights
        keys, values = array(near_keys, far_keys, resident), array(near_values, far_values, resident)
        thread = np.int32(cuda.threadIdx.x)
        lane, warp = thread & 31, thread >> 5
        unit = np.int64(cuda.blockIdx.x)
        kv_head = unit // tokens
        token = unit - kv_head * tokens
        query_at, out_at = query + unit * (group * dim * 4), out + unit * (group * dim * 4)
        whole = (start + token + 1) // block
        reads_all = whole <= count
        row = chosen + token * count * id_bytes
        selected = np.int32(0 if reads_all else count * block)
        tail = np.int32(0 if reads_all else whole * block)  # the first token after the selected ones
        num_keys = selected + np.int32(start + token + 1) - tail
        for i in range(thread * 4, group * dim, _THREADS * 4):
            v = load_float4(query_at + i * 4)
            heads[i], heads[i + 1], heads[i + 2], heads[i + 3] = v[0], v[1], v[2], v[3]
        sums = cuda.local.array(sum_values, np.float32)
        for i in range(sum_values):
            sums[i] = _ZERO
        highest, weight = cuda.local.array(rounds, np.float32), cuda.local.array(rounds, np.float32)
        for i in range(rounds):
            highest[i], weight[i] = _NOTHING, _ZERO
        quarter = lane >> 3  # of each 32 values of a key, eight are this lane's
        cuda.syncthreads()
        for tile in range((num_keys + _TILE - 1) // _TILE):
            first = tile * _TILE
            buffer = tile & 1
            # scores: of keys `near` and `near + 8` of the tile. A key past the last is scored as the first, then left out
            near = warp * 16 + (lane & 7)
            has0, has1 = first + near < num_keys, first + near + 8 < num_keys
            token0 = token_of(row, first + near if has0 else 0, selected, tail)
            token1 = token_of(row, first + near + 8 if has1 else 0, selected, tail)
            at0, at1 = place(keys, context, kv_head, token0), place(keys, context, kv_head, token1)
            dots = cuda.local.array(sum_values, np.float32)
            for i in range(sum_values):
                dots[i] = _ZERO
            for step in range(steps):
                part = step * 32 + quarter * 8
                score(dots, heads, part, eight(at0, part), eight(at1, part))
            scored = buffer * (group * _TILE)
            for h in range(group):
                dot0, dot1 = quarter_sum(dots[2 * h]), quarter_sum(dots[2 * h + 1])
                if quarter == h & 3:
                    shares[scored + h * _TILE + near] = dot0 if has0 else _NOTHING
                    shares[scored + h * _TILE + near + 8] = dot1 if has1 else _NOTHING
            if quarter == 0:
                places[buffer * _TILE + near], places[buffer * _TILE + near + 8] = token0, token1
            cuda.syncthreads()
            for i in range(rounds):
                h = warp + 4 * i
                at = scored + h * _TILE + lane
                low, high = _ZERO, _ZERO
                if h < group:
                    low, high = shares[at], shares[at + 32]
                peak = max(highest[i], warp_highest(max(low, high)))
                low, high = _exp(low - peak), _exp(high - peak)
                scale = _exp(highest[i] - peak)
                weight[i] = fused(weight[i], scale, add(low, high))
                highest[i] = peak
                if h < group:
                    shares[at], shares[at + 32] = low, high
                    if lane == 0:
                        scales[h] = scale
            cuda.syncthreads()
            # the next tile's scores go to the other buffer, and no thread passes its barrier before all are through here
            if thread < pairs:
                weigh(sums, shares, scored, scales, places, buffer * _TILE, min(num_keys - first, _TILE), values, context, kv_head, thread)
        for i in range(rounds):
            total = _warp_sum(weight[i])
            if lane == 0 and warp + 4 * i < group:
                scales[_MAX_HEADS + warp + 4 * i] = total
        cuda.syncthreads()
        if thread < pairs:
            for h in range(group):
                total = scales[_MAX_HEADS + h]
                store_float2(out_at + (h * dim + thread * 2) * 4, divide(sums[2 * h], total), divide(sums[2 * h + 1], total))

    return Kernel(attend, "i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64", _THREADS, 4)


def _token_of(block: int, id_bytes: int) -> Any:
    @inline
    def token_of(row, key, selected, tail):  # type: ignore[no-untyped-def]
        """The token that is a query's key number `key`: of its chosen blocks, then of the tail."""
        if key < selected:
            return load_int(row + (key // block) * id_bytes) * block + key % block
        return tail + key - selected

    return token_of


def _score(group: int, dim: int) -> Any:
    @inline
    def score(dots, heads, at, a, b):  # type: ignore[no-untyped-def]
        """Eight values from `at` on of two keys, times all heads'."""
        for h in range(group):
            q, r = load_shared_float4(heads, h * dim + at), load_shared_float4(heads, h * dim + at + 4)
            low = fused(q[3], a[3], fused(q[2], a[2], fused(q[1], a[1], fused(q[0], a[0], dots[2 * h]))))
            dots[2 * h] = fused(r[3], a[7], fused(r[2], a[6], fused(r[1], a[5], fused(r[0], a[4], low))))
            high = fused(q[3], b[3], fused(q[2], b[2], fused(q[1], b[1], fused(q[0], b[0], dots[2 * h + 1]))))
            dots[2 * h + 1] = fused(r[3], b[7], fused(r[2], b[6], fused(r[1], b[5], fused(r[0], b[4], high))))

    return score


def _weigh(group: int, cells: Cells) -> Any:
    place, pair = cells.place, cells.pair

    @inline
    def weigh(sums, shares, scored, scales, places, first, count, values, context, kv_head, thread):  # type: ignore[no-untyped-def]
        """This thread's two values of every head, four keys at a time; a place past `count` has the weight 0."""
        for h in range(group):
            sums[2 * h], sums[2 * h + 1] = multiply(sums[2 * h], scales[h]), multiply(sums[2 * h + 1], scales[h])
        for n in range(0, count, 4):
            a = pair(place(values, context, kv_head, places[first + n]), thread * 2)
            b = pair(place(values, context, kv_head, places[first + n + 1]), thread * 2)
            c = pair(place(values, context, kv_head, places[first + n + 2]), thread * 2)
            d = pair(place(values, context, kv_head, places[first + n + 3]), thread * 2)
            for h in range(group):
                p = load_shared_float4(shares, scored + h * _TILE + n)
                sums[2 * h] = fused(p[3], d[0], fused(p[2], c[0], fused(p[1], b[0], fused(p[0], a[0], sums[2 * h]))))
                sums[2 * h + 1] = fused(p[3], d[1], fused(p[2], c[1], fused(p[1], b[1], fused(p[0], a[1], sums[2 * h + 1]))))

    return weigh


@inline
def _exp(value):  # type: ignore[no-untyped-def]
    return np.float32(math.exp(value))
