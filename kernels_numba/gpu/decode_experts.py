"""What a token's routed experts need around their products, on the GPU: the choice and its weights, silu(gate) * up, the sum.

Knows no format and no tier: where an expert lies is an entry of a table. A row's bits depend on that row alone.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import float32, int32

from kernels_numba.device import Kernel, address, cuda, inline
from kernels_numba.gpu.moe import sigmoid, silu
from kernels_numba.ptx import (
    WORD,
    add,
    add_int,
    as_float,
    as_word,
    bits,
    divide,
    larger,
    load_float,
    load_long,
    multiply,
    store32,
    store64,
    store_float,
    warp_least,
    warp_most,
    warp_total,
    xor,
)  # fmt: skip

_WARP = 32
_THREADS = 128
_COMBINE_THREADS = 64  # a token's 2,560 sums are few: in small blocks they reach more multiprocessors
_ZERO = np.float32(0)
_TAKEN, _NAN_RANK = np.int32(0), np.int32(1)


def route_decode(scores: Any, table: Any, ids: Any, weights: Any, addresses: Any, nans: Any, stream: int = 0) -> None:
    """scores float32 [R, E], table int64 [E] -> ids int32, weights float32, addresses int64, all [R, k], in ascending id.

    The k best, ties to the lower id, a NaN below -inf; a weight is exp(score) over the sum of the k; an address is the table's entry.
    nans int32 [1]: the number of NaN scores is added. Refused: k of 0, above E or above 32.
    """
    (rows, experts), count = (int(size) for size in scores.shape), int(ids.shape[1])
    if not 1 <= count <= min(experts, _WARP):
        raise ValueError(f"{count} of {experts} experts: wanted 1 to {min(experts, _WARP)}")
    pointers = (address("scores", scores, "float32", (rows, experts)), address("table", table, "int64", (experts,)),
                address("ids", ids, "int32", (rows, count)), address("weights", weights, "float32", (rows, count)),
                address("addresses", addresses, "int64", (rows, count)), address("nans", nans, "int32", (1,)))  # fmt: skip
    route_kernel(experts, count).launch(rows, stream, *pointers)


def silu_pair(gate_up: Any, hidden: Any, stream: int = 0) -> None:
    """hidden [J, I] = silu(gate) * up of gate_up [J, 2 I]; float32."""
    rows, width = (int(size) for size in hidden.shape)
    pointers = address("gate_up", gate_up, "float32", (rows, 2 * width)), address("hidden", hidden, "float32", (rows, width))
    pair_kernel(width).launch(-(-rows * width // _THREADS), stream, *pointers, rows * width)


def experts_combine(y: Any, weights: Any, shared: Any, shared_gate: Any, out: Any, stream: int = 0) -> None:
    """out [R, H] = sigmoid(shared_gate [R]) * shared [R, H], then + weights [R, k] * y [R * k, H] in turn; float32.

    Product and sum are rounded apart: the bits of moe_shared_init and moe_scatter_add, where y has a row's experts in ascending id.
    """
    (rows, width), count = (int(size) for size in out.shape), int(weights.shape[1])
    pointers = (address("y", y, "float32", (rows * count, width)), address("weights", weights, "float32", (rows, count)),
                address("shared", shared, "float32", (rows, width)), address("shared_gate", shared_gate, "float32", (rows,)),
                address("out", out, "float32", (rows, width)))  # fmt: skip
    combine_kernel(count, width).launch(-(-rows * width // _COMBINE_THREADS), stream, *pointers, rows * width)


@functools.cache
def route_kernel(experts: int, count: int) -> Kernel:
    """A warp a row, its scores in registers; each turn takes the best that is left."""
    each = -(-experts // _WARP)

    def route_row(scores, table, ids, weights, addresses, nans):  # type: ignore[no-untyped-def]
        chosen = cuda.shared.array(_WARP, int32)  # one declaration a line: the simulator names arrays by line
        shares = cuda.shared.array(_WARP, float32)
        lane, row = np.int32(cuda.threadIdx.x), np.int64(cuda.blockIdx.x)
        ranks = cuda.local.array(each, WORD)
        bad = np.int32(0)
        for i in range(each):  # without a branch, so that all loads are under way at once
            score = load_float(scores + (row * experts + min(lane + i * _WARP, experts - 1)) * 4)
            rank, inside = _rank(score), lane + i * _WARP < experts
            ranks[i] = rank if inside else _TAKEN
            bad += np.int32(inside & (score != score))
        bad = warp_total(bad)
        top, mine = _ZERO, _ZERO
        for turn in range(count):
            best = ranks[0]
            for i in range(1, each):
                best = larger(best, ranks[i])
            best = warp_most(best)
            expert = np.int32(experts)
            for i in range(each - 1, -1, -1):
                if ranks[i] == best:
                    expert = np.int32(lane + i * _WARP)
            expert = warp_least(expert)
            for i in range(each):
                if lane + i * _WARP == expert:
                    ranks[i] = _TAKEN
            if turn == 0:
                top = _score(best)
            if lane == turn:
                chosen[lane] = expert
                mine = _score(best)
        if lane < count:
            shares[lane] = np.float32(math.exp(mine - top))
        cuda.syncthreads()
        if lane < count:
            expert, place, total = chosen[lane], np.int32(0), _ZERO
            for j in range(count):
                place += np.int32(chosen[j] < expert)
                total = add(total, shares[j])
            at = row * count + place
            store32(ids + at * 4, expert)
            store_float(weights + at * 4, divide(shares[lane], total))
            store64(addresses + at * 8, load_long(table + np.int64(expert) * 8))
        if lane == 0 and bad > 0:
            add_int(nans, bad)

    return Kernel(route_row, "i64 i64 i64 i64 i64 i64", _WARP)


@inline
def _rank(score):  # type: ignore[no-untyped-def]
    """A word that sorts, unsigned, by score: 1 for NaN; 0 is left for a score that is taken."""
    word = as_word(add(score, _ZERO))  # -0 becomes 0
    rank = xor(word, -1 if bits(word, 31, 1) else -(2**31))
    return rank if score == score else _NAN_RANK


@inline
def _score(rank):  # type: ignore[no-untyped-def]
    """The inverse; NaN of NaN's rank."""
    return as_float(xor(rank, -(2**31) if bits(rank, 31, 1) else -1))


@functools.cache
def pair_kernel(width: int) -> Kernel:
    """A thread a value."""

    def silu_pairs(gate_up, hidden, total):  # type: ignore[no-untyped-def]
        i = np.int64(cuda.blockIdx.x) * _THREADS + cuda.threadIdx.x
        if i < total:
            at = gate_up + (i // width * width + i) * 4
            gate, up = load_float(at), load_float(at + width * 4)
            store_float(hidden + i * 4, multiply(silu(gate), up))

    return Kernel(silu_pairs, "i64 i64 i64", _THREADS)


@functools.cache
def combine_kernel(count: int, width: int) -> Kernel:
    """A thread a value of out, over its row's experts in turn."""

    def combine_experts(y, weights, shared, shared_gate, out, total):  # type: ignore[no-untyped-def]
        i = np.int64(cuda.blockIdx.x) * _COMBINE_THREADS + cuda.threadIdx.x
        if i < total:
            row = i // width
            at = y + (row * ((count - 1) * width) + i) * 4
            open_share = sigmoid(load_float(shared_gate + row * 4))
            combined = multiply(open_share, load_float(shared + i * 4))
            for j in range(count):
                combined = add(combined, multiply(load_float(weights + (row * count + j) * 4), load_float(at + j * (width * 4))))
            store_float(out + i * 4, combined)

    return Kernel(combine_experts, "i64 i64 i64 i64 i64 i64", _COMBINE_THREADS)
