"""How much each token's index heads like each block of earlier tokens, on the GPU: one product, nothing kept a head. Knows no positions.

A block of threads makes 128 rows (a token's heads are neighbours) x 128 blocks, a thread 8 x 8 of them, 16 values at a time, twice
buffered: while one step is multiplied the next one's values come into registers. All arithmetic is float32.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32

from kernels_numba.device import Kernel, address, cuda, inline
from kernels_numba.ptx import add, divide, fused, load_float4, load_shared_float4, store_float

_THREADS = 256
_TILE = 128
_STEP = 16
_PITCH = _TILE + 4  # floats a shared row, so that rows start in other banks
_BUFFER = _STEP * _PITCH
_SHARED = 2 * _BUFFER
_ZERO = np.float32(0)


def index_scores(queries: Any, blocks: Any, out: Any, stream: int = 0) -> None:
    """out[t, n] = the sum over heads of relu(queries[t, h] . blocks[n]), over sqrt(D).

    queries float32 [T, H, D], blocks float32 [*, D] of which the first out.shape[1] count, out float32 [T, n]. H is 1, 2, 4 or 8, D a
    multiple of 16. Every sum has one order: a score depends on its query and its block alone. Errs by at most D + 8 roundings.
    """
    (tokens, heads, dim), width = (int(size) for size in queries.shape), int(out.shape[1])
    if heads not in (1, 2, 4, 8) or dim % _STEP or width > int(blocks.shape[0]):
        raise ValueError(
            f"{heads} heads of {dim} values, {width} of {blocks.shape[0]} blocks: wanted 1, 2, 4 or 8, and a multiple of {_STEP}"
        )
    pointers = (address("queries", queries, "float32", (tokens, heads, dim)), address("blocks", blocks, "float32", (-1, dim)),
                address("out", out, "float32", (tokens, width)))  # fmt: skip
    if any(pointer % 16 for pointer in pointers[:2]):
        raise ValueError("queries and blocks must start at multiples of 16 bytes")
    across = -(-width // _TILE)
    scores_kernel(heads, dim).launch(-(-tokens * heads // _TILE) * across, stream, *pointers, tokens * heads, width, across)


@functools.cache
def scores_kernel(heads: int, dim: int) -> Kernel:
    """The columns' tiles change fastest: the rows' stay in the cache."""
    steps, whole, root = dim // _STEP, 8 // heads, np.float32(dim**0.5)

    def score_tile(queries, blocks, out, rows, width, across):  # type: ignore[no-untyped-def]
        left = cuda.shared.array(_SHARED, float32)  # one declaration a line: the simulator names arrays by line
        right = cuda.shared.array(_SHARED, float32)
        thread = np.int32(cuda.threadIdx.x)
        tile = np.int64(cuda.blockIdx.x) // across
        first_row, first_block = tile * _TILE, (np.int64(cuda.blockIdx.x) - tile * across) * _TILE
        # this thread brings eight values of one row and of one block: line 0 to 127, half 0 or 1 of the step
        line, half = thread >> 1, thread & 1
        source = queries + (min(first_row + line, rows - 1) * dim + half * 8) * 4
        other = blocks + (min(first_block + line, width - 1) * dim + half * 8) * 4
        # and makes rows 8 down .. + 7 of blocks 4 over .. + 3 and 64 + 4 over .. + 3
        over, down = thread & 15, thread >> 4
        sums = cuda.local.array(64, np.float32)
        for i in range(64):
            sums[i] = _ZERO
        place = half * 8 * _PITCH + line
        _spread(left, place, load_float4(source), load_float4(source + 16))
        _spread(right, place, load_float4(other), load_float4(other + 16))
        for step in range(steps):
            now = (step & 1) * _BUFFER
            cuda.syncthreads()
            ahead = min(step + 1, steps - 1) * (_STEP * 4)
            a, b = load_float4(source + ahead), load_float4(source + ahead + 16)
            c, d = load_float4(other + ahead), load_float4(other + ahead + 16)
            _multiply_step(sums, left, right, now + 8 * down, now + 4 * over)
            if step + 1 < steps:  # no thread reads that buffer: all have passed the barrier since they did
                _spread(left, _BUFFER - now + place, a, b)
                _spread(right, _BUFFER - now + place, c, d)
        for token in range(whole):
            row = (first_row + 8 * down) // heads + token
            for j in range(8):
                column = first_block + 4 * over + (j & 3) + 64 * (j >> 2)
                total = _ZERO
                for h in range(heads):
                    dot = sums[8 * (token * heads + h) + j]
                    if not dot < _ZERO:  # a NaN stays one
                        total = add(total, dot)
                if row * heads < rows and column < width:
                    store_float(out + (row * width + column) * 4, divide(total, root))

    return Kernel(score_tile, "i64 i64 i64 i64 i64 i64", _THREADS, 2)


@inline
def _multiply_step(sums, left, right, row, column):  # type: ignore[no-untyped-def]
    for k in range(_STEP):
        a, b = load_shared_float4(left, k * _PITCH + row), load_shared_float4(left, k * _PITCH + row + 4)
        c, d = load_shared_float4(right, k * _PITCH + column), load_shared_float4(right, k * _PITCH + column + 64)
        _row(sums, 0, a[0], c, d)
        _row(sums, 8, a[1], c, d)
        _row(sums, 16, a[2], c, d)
        _row(sums, 24, a[3], c, d)
        _row(sums, 32, b[0], c, d)
        _row(sums, 40, b[1], c, d)
        _row(sums, 48, b[2], c, d)
        _row(sums, 56, b[3], c, d)


@inline
def _row(sums, at, value, c, d):  # type: ignore[no-untyped-def]
    """One value of a row times one of eight blocks."""
    sums[at], sums[at + 1] = fused(value, c[0], sums[at]), fused(value, c[1], sums[at + 1])
    sums[at + 2], sums[at + 3] = fused(value, c[2], sums[at + 2]), fused(value, c[3], sums[at + 3])
    sums[at + 4], sums[at + 5] = fused(value, d[0], sums[at + 4]), fused(value, d[1], sums[at + 5])
    sums[at + 6], sums[at + 7] = fused(value, d[2], sums[at + 6]), fused(value, d[3], sums[at + 7])


@inline
def _spread(shared, at, a, b):  # type: ignore[no-untyped-def]
    """Eight values of one row or block, value-major."""
    shared[at], shared[at + _PITCH], shared[at + 2 * _PITCH], shared[at + 3 * _PITCH] = a[0], a[1], a[2], a[3]
    at += 4 * _PITCH
    shared[at], shared[at + _PITCH], shared[at + 2 * _PITCH], shared[at + 3 * _PITCH] = b[0], b[1], b[2], b[3]
