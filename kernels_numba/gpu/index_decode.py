"""The index of a QSA layer for a few consecutive tokens of one sequence, on the GPU: keys in, queries, scores, the best blocks.

R rows at positions p, p + 1, ..; p is read on the device, so that one captured launch serves every token. Knows no keys or values of
the attention. Grids are as large as the arrays allow: blocks of threads without work return at once.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32

from kernels_numba.device import Kernel, address, cuda, inline
from kernels_numba.gpu.select_blocks import select_kernel, select_threads
from kernels_numba.gpu.turned_heads import head_loader, head_norm, head_turn, lane_values
from kernels_numba.gpu.unrolled import unrolled
from kernels_numba.gpu.warp import quarter_sum
from kernels_numba.ptx import (
    add,
    divide,
    fused,
    load_float,
    load_float4,
    load_long,
    reload_float,
    store_float,
)  # fmt: skip

_THREADS = 128
_TILE = 64  # blocks that a block of threads scores: 16 a warp, two a lane and its three neighbours at the same blocks
_MAX_DIM, _MAX_HEADS = 256, 16
_ZERO = np.float32(0)


def index_append(
    k: Any, first: int, pending: Any, blocks: Any, block: int, k_norm: Any, eps: float, frequencies: Any, position: Any, stream: int = 0
) -> None:
    """Take in the index keys k[:, first : first + D] of tokens from `position` on; each block of tokens that they end is pooled.

    k float32 [R, W]; pending [m * block, D]: the last tokens' keys, token t at row t % (m * block), so that with m * block >= block + 7
    tokens may be taken back; blocks [n, D]: the mean of a block's keys, normed and turned to its first token; k_norm [D], eps,
    frequencies [F <= D / 2], position int64 [1].
    """
    (rows, width), (kept, dim) = (int(size) for size in k.shape), (int(size) for size in pending.shape)
    half = _checked_columns("k", first, dim, width, frequencies, dim)
    if block < 1 or kept % block or not kept:
        raise ValueError(f"{kept} pending keys of blocks of {block}: wanted a multiple")
    pointers = (address("k", k, "float32", (rows, width)), address("pending", pending, "float32", (kept, dim)),
                address("blocks", blocks, "float32", (-1, dim)), address("k_norm", k_norm, "float32", (dim,)),
                address("frequencies", frequencies, "float32", (half,)), address("position", position, "int64", (1,)))  # fmt: skip
    if rows:
        append_kernel(dim, half, block, kept).launch(1, stream, *pointers, rows, width, first, eps)


def index_queries(q: Any, first: int, q_norm: Any, eps: float, frequencies: Any, position: Any, out: Any, stream: int = 0) -> None:
    """out[r, h] = the h-th D columns of q from `first` on, normed and turned to position + r: q float32 [R, W], out [R, H, D]."""
    (rows, heads, dim), width = (int(size) for size in out.shape), int(q.shape[1])
    half = _checked_columns("q", first, heads * dim, width, frequencies, dim)
    pointers = (address("q", q, "float32", (rows, width)), address("q_norm", q_norm, "float32", (dim,)),
                address("frequencies", frequencies, "float32", (half,)), address("position", position, "int64", (1,)),
                address("out", out, "float32", (rows, heads, dim)))  # fmt: skip
    queries_kernel(dim, half).launch(rows * heads, stream, *pointers, width, first, heads, eps)


def index_scores_at(queries: Any, blocks: Any, block: int, count: int, position: Any, scores: Any, stream: int = 0) -> None:
    """scores[r, i] = the sum over heads of relu(queries[r, h] . blocks[i]), over sqrt(D), of each block that is whole with row r.

    A row that has at most `count` whole blocks gets none; what is not written stays as it was. queries float32 [R, H, D], blocks
    [*, D], scores [R, n], n at most as many as blocks. D is a multiple of 8, at most 256; H at most 16.
    """
    (rows, heads, dim), width = (int(size) for size in queries.shape), int(scores.shape[1])
    if dim % 8 or dim > _MAX_DIM or heads > _MAX_HEADS or width > int(blocks.shape[0]):
        raise ValueError(f"{heads} heads of {dim} values, {width} of {blocks.shape[0]} blocks: wanted at most {_MAX_HEADS}, "
                         f"and a multiple of 8 to {_MAX_DIM}")  # fmt: skip
    pointers = (address("queries", queries, "float32", (rows, heads, dim)), address("blocks", blocks, "float32", (-1, dim)),
                address("position", position, "int64", (1,)), address("scores", scores, "float32", (rows, width)))  # fmt: skip
    if any(pointer % 16 for pointer in pointers[:2]):
        raise ValueError("queries and blocks must start at multiples of 16 bytes")
    if rows:
        scores_kernel(heads, dim, block).launch(-(-width // _TILE), stream, *pointers, rows, width, count)


def select_blocks_at(scores: Any, block: int, position: Any, chosen: Any, stream: int = 0) -> None:
    """select_blocks of rows from `position` on: scores float32 [R, n], chosen int32 [R, b]; n holds every whole block of the rows."""
    (rows, width), count = (int(size) for size in scores.shape), int(chosen.shape[1])
    pointers = address("scores", scores, "float32", (rows, width)), address("chosen", chosen, "int32", (rows, count))
    _selection(width, block).launch(rows, stream, *pointers, width, count, address("position", position, "int64", (1,)))


def load_selection(width: int, block: int) -> None:
    """Compiles, or loads, what select_blocks_at launches for n = `width`: of a reply's kernels the one that hangs on its context."""
    _selection(width, block).load()


def _selection(width: int, block: int) -> Kernel:
    return select_kernel(block, select_threads(width), True)


def _checked_columns(name: str, first: int, wanted: int, width: int, frequencies: Any, dim: int) -> int:
    """How many pairs of a head are turned."""
    half = int(frequencies.shape[0])
    if not 0 <= first <= width - wanted or dim > _MAX_DIM or 2 * half > dim:
        raise ValueError(f"columns {first} to {first + wanted} of {name}'s {width}, {2 * half} turned of heads of {dim} values")
    return half


@functools.cache
def append_kernel(dim: int, half: int, block: int, kept: int) -> Kernel:
    """One warp, row after row: a row may end a block that a row before it belongs to."""
    own, size = lane_values(dim), np.float32(block)
    norm, turn = head_norm(dim), head_turn(half)

    def append(k, pending, blocks, weight, frequencies, position, rows, width, first, eps):  # type: ignore[no-untyped-def]
        shared = cuda.shared.array(dim, float32)
        lane = np.int32(cuda.threadIdx.x)
        start = load_long(position)
        values = cuda.local.array(own, np.float32)
        for r in range(rows):
            place = start + r
            row = k + (r * width + first) * 4
            at = pending + place % kept * (dim * 4)
            for i in range(own):
                if lane + 32 * i < dim:
                    store_float(at + (lane + 32 * i) * 4, load_float(row + (lane + 32 * i) * 4))
            begin = place + 1 - block
            if (place + 1) % block == 0:
                at = pending + begin % kept * (dim * 4)
                for i in range(own):
                    values[i] = _ZERO
                    if lane + 32 * i < dim:
                        for j in range(block):  # the last one was stored by this thread
                            values[i] = add(values[i], reload_float(at + (j * dim + lane + 32 * i) * 4))
                        values[i] = divide(values[i], size)
                norm(values, weight, eps, shared, lane)
                cuda.syncthreads()
                turn(shared, frequencies, begin, lane)
                cuda.syncthreads()
                for i in range(lane, dim, 32):
                    store_float(blocks + (begin // block * dim + i) * 4, shared[i])
                cuda.syncthreads()

    return Kernel(append, "i64 i64 i64 i64 i64 i64 i64 i64 i64 f32", 32)


@functools.cache
def queries_kernel(dim: int, half: int) -> Kernel:
    """A warp a row's head."""
    own = lane_values(dim)
    load, norm, turn = head_loader(dim), head_norm(dim), head_turn(half)

    def make_query(q, weight, frequencies, position, out, width, first, heads, eps):  # type: ignore[no-untyped-def]
        shared = cuda.shared.array(dim, float32)
        lane, unit = np.int32(cuda.threadIdx.x), np.int64(cuda.blockIdx.x)
        row = unit // heads
        values = cuda.local.array(own, np.float32)
        load(q + (row * width + first + (unit - row * heads) * dim) * 4, values, lane)
        norm(values, weight, eps, shared, lane)
        cuda.syncthreads()
        turn(shared, frequencies, load_long(position) + row, lane)
        cuda.syncthreads()
        for i in range(lane, dim, 32):
            store_float(out + (unit * dim + i) * 4, shared[i])

    return Kernel(make_query, "i64 i64 i64 i64 i64 i64 i64 i64 f32", 32)


@functools.cache
def scores_kernel(heads: int, dim: int, block: int) -> Kernel:
    """A block of threads 64 index blocks, which stay in registers for all rows: a quarter of a block's values lie in each of four lanes."""
    steps, held_values, sum_values, root = -(-dim // 32), 16 * -(-dim // 32), 2 * heads, np.float32(dim**0.5)
    fetch_all, meet_all = unrolled(steps, _fetch(dim)), unrolled(steps, _meet(heads, dim))

    def score_blocks(queries, blocks, position, scores, rows, width, count):  # type: ignore[no-untyped-def]
        thread = np.int32(cuda.threadIdx.x)
        lane, quarter = thread & 31, (thread & 31) >> 3
        start = load_long(position)
        most = (start + rows) // block  # whole blocks of the last row
        first = np.int64(cuda.blockIdx.x) * _TILE
        if most <= count or first >= most:
            return
        near = first + (thread >> 5) * 16 + (lane & 7)
        last = min(most, width) - 1
        held = cuda.local.array(held_values, np.float32)
        fetch_all(held, blocks + min(near, last) * (dim * 4), blocks + min(near + 8, last) * (dim * 4), quarter)
        dots = cuda.local.array(sum_values, np.float32)
        for r in range(rows):
            whole = min((start + r + 1) // block, width)
            if whole > count:  # the whole grid's
                for i in range(sum_values):
                    dots[i] = _ZERO
                meet_all(dots, held, queries + r * (heads * dim * 4), quarter)
                low, high = _ZERO, _ZERO
                for h in range(heads):
                    low, high = _add_liked(low, quarter_sum(dots[2 * h])), _add_liked(high, quarter_sum(dots[2 * h + 1]))
                at = scores + (r * width + near) * 4
                if quarter == 0 and near < whole:
                    store_float(at, divide(low, root))
                if quarter == 1 and near + 8 < whole:
                    store_float(at + 32, divide(high, root))

    # more registers would hold queries that are read too early, and leave fewer threads to wait for keys
    return Kernel(score_blocks, "i64 i64 i64 i64 i64 i64 i64", _THREADS, 3 if steps <= 4 else 1)


def _fetch(dim: int) -> Any:
    @inline
    def fetch(step, held, low, high, quarter):  # type: ignore[no-untyped-def]
        """Eight values of two index blocks; zeros past their ends."""
        part = step * 32 + quarter * 8
        for i in range(16):
            held[16 * step + i] = _ZERO
        if part < dim:
            a, b = load_float4(low + part * 4), load_float4(low + part * 4 + 16)
            c, d = load_float4(high + part * 4), load_float4(high + part * 4 + 16)
            for i in range(4):
                held[16 * step + i], held[16 * step + 4 + i] = a[i], b[i]
                held[16 * step + 8 + i], held[16 * step + 12 + i] = c[i], d[i]

    return fetch


def _meet(heads: int, dim: int) -> Any:
    @inline
    def meet(step, dots, held, query, quarter):  # type: ignore[no-untyped-def]
        """Those values times every head's; past the ends any of its values, times zero."""
        part = step * 32 + quarter * 8
        if part >= dim:
            part = 0
        for h in range(heads):
            at, own = query + (h * dim + part) * 4, 16 * step
            q, r = load_float4(at), load_float4(at + 16)
            low, high = dots[2 * h], dots[2 * h + 1]
            for i in range(4):
                low, high = fused(q[i], held[own + i], low), fused(q[i], held[own + 8 + i], high)
            for i in range(4):
                low, high = fused(r[i], held[own + 4 + i], low), fused(r[i], held[own + 12 + i], high)
            dots[2 * h], dots[2 * h + 1] = low, high

    return meet


@inline
def _add_liked(total, dot):  # type: ignore[no-untyped-def]
    """total + relu(dot); a NaN stays one."""
    return total if dot < _ZERO else add(total, dot)
