"""Attention of one token over up to 32 keys of its list, for all query heads of a kv head, on the GPU: sums that are yet to be scaled.

Keys and values are asked for before anything is computed with them, since one token has few threads to wait in turns.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import float32, int32

from kernels_numba.device import WIDE, Kernel, cuda, inline
from kernels_numba.gpu.kv_cells import Cells, kv_cells
from kernels_numba.gpu.unrolled import unrolled
from kernels_numba.gpu.warp import lane_sum, quarter_sum, warp_highest
from kernels_numba.ptx import add, fused, load_float4, load_int, load_long, load_shared_float4, store_float2

PART = 32  # keys: at 2,051 of them for two kv heads 130 blocks of threads, about one a multiprocessor
MAX_HEADS, MAX_DIM = 16, 256
_THREADS = 128
_ZERO, _NOTHING = np.float32(0), np.float32(-np.inf)
_warp_sum = lane_sum(32)


@functools.cache
def part_kernel(group: int, dim: int, kv_format: str, block: int, is_split: bool) -> Kernel:
    """A block of threads a row, kv head and part.

    Scores: warps 0 and 1 take 16 keys each on one half of the values, warps 2 and 3 on the other; a lane two keys, on a quarter of
    each 32 values. Weighted values: a thread has two of every head. Keys and values are asked for before anything is computed.
    """
    turns, pairs = -(-dim // 64), dim // 2
    pitch, half_shares, head_turns = 64 * turns, group * PART, -(-group // 4)  # a head is filled with zeros
    head_values, share_values, sum_values, key_values = group * pitch, 2 * half_shares, 2 * group, 16 * turns
    own_query = -(-head_values // (4 * _THREADS))
    query_values = 4 * own_query
    cells = kv_cells(kv_format, dim, is_split)
    array, place, keys_of = cells.array, cells.place, list_of(block)
    fetch_keys, score = unrolled(turns, _fetch_keys(cells, dim)), unrolled(turns, _score(group, pitch))
    fetch_values, weigh = unrolled(PART // 4, _fetch_values(cells)), unrolled(PART // 4, _weigh(group))

    def attend(  # type: ignore[no-untyped-def]
        query, near_keys, near_values, far_keys, far_values, resident, chosen, position, partial, stats, context, kv_heads, count, parts
    ):
        heads = cuda.shared.array(head_values, float32, WIDE)
        shares = cuda.shared.array(share_values, float32, WIDE)  # scores of both halves of the values, then weights
        places = cuda.shared.array(PART, int32)
        keys, values = array(near_keys, far_keys, resident), array(near_values, far_values, resident)
        thread = np.int32(cuda.threadIdx.x)
        lane, warp = thread & 31, thread >> 5
        unit = np.int64(cuda.blockIdx.x)  # row, kv head, part
        row = unit // (kv_heads * parts)
        kv_head, part = unit // parts - row * kv_heads, unit % parts
        first, quarter, side = part * PART, lane >> 3, warp >> 1
        near = (warp & 1) * 16 + (lane & 7)
        key0, key1 = first + near, first + near + 8
        # these are asked for before it is known whether the row chooses, and whether the part has keys
        own = cuda.local.array(query_values, np.float32)
        query_at = query + (row * kv_heads + kv_head) * (group * dim * 4)
        for i in range(own_query):
            at = (i * _THREADS + thread) * 4
            v = _ZERO, _ZERO, _ZERO, _ZERO
            if at < head_values and at % pitch < dim:
                v = load_float4(query_at + (at // pitch * dim + at % pitch) * 4)
            own[4 * i], own[4 * i + 1], own[4 * i + 2], own[4 * i + 3] = v[0], v[1], v[2], v[3]
        pick0 = np.int64(load_int(chosen + (row * count + min(key0 // block, count - 1)) * 4))
        pick1 = np.int64(load_int(chosen + (row * count + min(key1 // block, count - 1)) * 4))
        last = load_long(position) + row  # the token itself
        selected, tail = keys_of(last, count)
        num_keys = selected + last + 1 - tail
        if first >= num_keys:
            return
        # a key past the list's end is scored as the last token's, then left out
        token0 = pick0 * block + key0 % block if key0 < selected else min(tail + key0 - selected, last)
        token1 = pick1 * block + key1 % block if key1 < selected else min(tail + key1 - selected, last)
        held = cuda.local.array(key_values, np.float32)
        fetch_keys(held, place(keys, context, kv_head, token0), place(keys, context, kv_head, token1), side * 32 + quarter * 8)
        if side == 0 and quarter == 0:
            places[near], places[near + 8] = token0, token1
        for i in range(own_query):
            at = (i * _THREADS + thread) * 4
            if at < head_values:
                heads[at], heads[at + 1], heads[at + 2], heads[at + 3] = own[4 * i], own[4 * i + 1], own[4 * i + 2], own[4 * i + 3]
        cuda.syncthreads()
        wide = cuda.local.array(64, np.float32)
        pair = min(thread, pairs - 1) * 2
        fetch_values(wide, values, context, kv_head, places, pair)
        dots = cuda.local.array(sum_values, np.float32)
        for i in range(sum_values):
            dots[i] = _ZERO
        score(dots, held, heads, side * 32 + quarter * 8)
        for h in range(group):
            dot0, dot1 = quarter_sum(dots[2 * h]), quarter_sum(dots[2 * h + 1])
            if quarter == h & 3:
                at = side * half_shares + h * PART + near
                shares[at], shares[at + 8] = dot0, dot1
        cuda.syncthreads()
        for i in range(head_turns):
            h = warp + 4 * i
            dot = _ZERO
            if h < group:
                dot = _NOTHING
                if first + lane < num_keys:
                    dot = add(shares[h * PART + lane], shares[half_shares + h * PART + lane])
            peak = warp_highest(dot)
            weight = np.float32(math.exp(dot - peak))
            total = _warp_sum(weight)
            if h < group:
                shares[h * PART + lane] = weight
                if lane == 0:
                    store_float2(stats + (((row * kv_heads + kv_head) * group + h) * parts + part) * 8, peak, total)
        cuda.syncthreads()
        for i in range(sum_values):
            dots[i] = _ZERO
        weigh(dots, wide, shares)
        if thread < pairs:
            for h in range(group):
                at = partial + ((((row * kv_heads + kv_head) * group + h) * parts + part) * dim + pair) * 4
                store_float2(at, dots[2 * h], dots[2 * h + 1])

    return Kernel(attend, "i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64", _THREADS)


def list_of(block: int) -> Any:
    """Device function (a token's position, blocks chosen)."""

    @inline
    def keys_of(last, count):  # type: ignore[no-untyped-def]
        """How many keys of the token at `last` are of chosen blocks, and the first token after those: 0 and 0 where it reads all."""
        whole = (last + 1) // block
        if whole <= count:
            return np.int64(0), np.int64(0)
        return np.int64(count * block), np.int64(whole * block)

    return keys_of


def _fetch_keys(cells: Cells, dim: int) -> Any:
    eight = cells.eight

    @inline
    def fetch_keys(turn, held, cell0, cell1, first):  # type: ignore[no-untyped-def]
        """Eight values of two keys; past a key's end its first ones, which meet zeros."""
        at = turn * 64 + first
        if at >= dim:
            at = 0
        a, b = eight(cell0, at), eight(cell1, at)
        for i in range(8):
            held[16 * turn + i], held[16 * turn + 8 + i] = a[i], b[i]

    return fetch_keys


def _score(group: int, pitch: int) -> Any:
    @inline
    def score(turn, dots, held, heads, first):  # type: ignore[no-untyped-def]
        """Those values times all heads'."""
        own = 16 * turn
        for h in range(group):
            at = h * pitch + turn * 64 + first
            q, r = load_shared_float4(heads, at), load_shared_float4(heads, at + 4)
            low, high = dots[2 * h], dots[2 * h + 1]
            for i in range(4):
                low, high = fused(q[i], held[own + i], low), fused(q[i], held[own + 8 + i], high)
            for i in range(4):
                low, high = fused(r[i], held[own + 4 + i], low), fused(r[i], held[own + 12 + i], high)
            dots[2 * h], dots[2 * h + 1] = low, high

    return score


def _fetch_values(cells: Cells) -> Any:
    place, pair_of = cells.place, cells.pair

    @inline
    def fetch_values(turn, wide, values, context, kv_head, places, pair):  # type: ignore[no-untyped-def]
        """Two values of four tokens."""
        for n in range(4):
            v = pair_of(place(values, context, kv_head, np.int64(places[4 * turn + n])), pair)
            wide[8 * turn + 2 * n], wide[8 * turn + 2 * n + 1] = v[0], v[1]

    return fetch_values


def _weigh(group: int) -> Any:
    @inline
    def weigh(turn, sums, wide, shares):  # type: ignore[no-untyped-def]
        """Those values times every head's weights."""
        for h in range(group):
            p = load_shared_float4(shares, h * PART + 4 * turn)
            for n in range(4):
                sums[2 * h] = fused(p[n], wide[8 * turn + 2 * n], sums[2 * h])
                sums[2 * h + 1] = fused(p[n], wide[8 * turn + 2 * n + 1], sums[2 * h + 1])

    return weigh
