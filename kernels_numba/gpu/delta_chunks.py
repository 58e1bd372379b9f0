"""The part of a gated delta net that must go chunk by chunk, on the GPU: its state, one matrix a head. Knows no queries, keys or gates.

A block of threads walks 32 of a head's state columns through all chunks: the state stays on the multiprocessor, and the matrices of
the next step are copied in the background, twice buffered. What does not need the state is for the caller, all chunks at once.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32

from kernels_numba.device import Kernel, address, cuda, inline
from kernels_numba.ptx import (
    copy_async,
    copy_commit,
    copy_wait,
    fused,
    load_float,
    load_float4,
    load_shared_float4,
    multiply,
    reload_float,
    shared_place,
    store_float4,
)  # fmt: skip

CHUNK = 64  # tokens
_THREADS = 128
_COLUMNS = 32  # of the state, a block of threads
_STEP = 32  # state rows multiplied at once, from a slice of `reads`
_PITCH = _STEP + 4  # floats a row of that slice, so that rows start in other banks
_TOKENS = 16  # added to the state at once, from a slice of `adds`
_MAX_DIM = 128
_SLICE = CHUNK * _PITCH
_WRITTEN = CHUNK * _COLUMNS
_SLICES = 2 * _SLICE
_SLICE_BYTES = 4 * _SLICE


def delta_chunks(reads: Any, wanted: Any, adds: Any, decay: Any, state: Any, written: Any, before: Any, stream: int = 0) -> None:
    """For each chunk n in turn: before[n] = S; written[n] = wanted[n] - reads[n] S; S = decay[n] S + adds[n]^T written[n].

    V heads, N chunks of 64 tokens, D values: reads, wanted, adds, written float32 [V, N, 64, D]; decay float32 [V, N]; before float32
    [V, N, D, D] (key x value); state float32 [V, D, D], moved on. D is a multiple of 32, at most 128. A chunk's missing tokens are rows
    of zeros. With a chunk's keys k, values v, betas b, total log decays t and A the unit lower triangular system of its corrections:
    reads = A^-1 (b exp(t) k), wanted = A^-1 (b v), adds = exp(t_last - t) k, decay = exp(t_last).

    Every sum has one order: a state's bits depend on its head's matrices alone, and on where its chunks begin.
    """
    heads, chunks, tokens, dim = (int(size) for size in reads.shape)
    if tokens != CHUNK or dim % 32 or dim > _MAX_DIM:
        raise ValueError(f"chunks of {tokens} tokens with {dim} values: wanted {CHUNK}, and a multiple of 32 to {_MAX_DIM}")
    rows = (heads, chunks, CHUNK, dim)
    pointers = (
        *(address(name, array, "float32", rows) for name, array in (("reads", reads), ("wanted", wanted), ("adds", adds))),
        address("decay", decay, "float32", (heads, chunks)),
        address("state", state, "float32", (heads, dim, dim)),
        address("written", written, "float32", rows),
        address("before", before, "float32", (heads, chunks, dim, dim)),
    )
    if any(pointer % 16 for pointer in pointers[:3] + pointers[4:]):
        raise ValueError("reads, wanted, adds, state, written and before must start at multiples of 16 bytes")
    if chunks:
        delta_kernel(dim).launch(heads * (dim // _COLUMNS), stream, *pointers, chunks)


@functools.cache
def delta_kernel(dim: int) -> Kernel:
    """A block of threads a head and 32 columns: a thread makes 4 x 4 of `written`, and holds D / 16 x 4 of the state."""
    slabs, rows, steps = dim // _COLUMNS, dim // 16, dim // _STEP
    slices, own, columns_values = steps + CHUNK // _TOKENS, 4 * rows, dim * _COLUMNS
    fetch, subtract, add_tokens = _fetch(dim), _subtract(), _add_tokens(dim)

    def walk_chunks(reads, wanted, adds, decay, state, written, before, chunks):  # type: ignore[no-untyped-def]
        columns = cuda.shared.array(columns_values, float32)  # the state: one declaration a line, the simulator names arrays by line
        fresh = cuda.shared.array(_WRITTEN, float32)  # what the chunk writes
        buffers = cuda.shared.array(_SLICES, float32)  # slices of reads, then of adds
        place = shared_place(buffers)
        thread = np.int32(cuda.threadIdx.x)
        across, down = (thread & 7) * 4, thread >> 3  # columns across .. + 3, rows down, down + 16, ..
        head = np.int64(cuda.blockIdx.x) // slabs
        first = (np.int64(cuda.blockIdx.x) - head * slabs) * _COLUMNS + across  # this thread's first column of the head's
        kept = cuda.local.array(own, np.float32)
        for i in range(rows):
            at = state + ((head * dim + down + 16 * i) * dim + first) * 4
            for j in range(4):
                kept[4 * i + j] = reload_float(at + 4 * j)
            _put(columns, (down + 16 * i) * _COLUMNS + across, kept, 4 * i)
        sums = cuda.local.array(16, np.float32)
        fetch(place, reads, adds, head * chunks, 0, thread)
        for n in range(chunks):
            chunk = head * chunks + n
            for i in range(rows):
                at = before + ((chunk * dim + down + 16 * i) * dim + first) * 4
                store_float4(at, kept[4 * i], kept[4 * i + 1], kept[4 * i + 2], kept[4 * i + 3])
            for i in range(4):
                v = load_float4(wanted + ((chunk * CHUNK + down + 16 * i) * dim + first) * 4)
                sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3] = v[0], v[1], v[2], v[3]
            for part in range(slices):
                # the slice at hand has come, and no thread needs the one before it any more: its room is the next one's
                turn = (n * slices + part) & 1
                copy_wait()
                cuda.syncthreads()
                if part + 1 < slices:
                    fetch(place + (1 - turn) * _SLICE_BYTES, reads, adds, chunk, part + 1, thread)
                elif n + 1 < chunks:
                    fetch(place + (1 - turn) * _SLICE_BYTES, reads, adds, chunk + 1, 0, thread)
                if part < steps:
                    subtract(sums, buffers, turn * _SLICE, columns, part * _STEP, across, down)
                if part == steps - 1:
                    for i in range(4):
                        at = written + ((chunk * CHUNK + down + 16 * i) * dim + first) * 4
                        store_float4(at, sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3])
                        _put(fresh, (down + 16 * i) * _COLUMNS + across, sums, 4 * i)
                if part == steps:
                    less = load_float(decay + chunk * 4)
                    for i in range(own):
                        kept[i] = multiply(kept[i], less)
                if part >= steps:
                    add_tokens(kept, buffers, turn * _SLICE, fresh, (part - steps) * _TOKENS, across, down)
            for i in range(rows):  # read again after the next barrier
                _put(columns, (down + 16 * i) * _COLUMNS + across, kept, 4 * i)
        for i in range(rows):
            at = state + ((head * dim + down + 16 * i) * dim + first) * 4
            store_float4(at, kept[4 * i], kept[4 * i + 1], kept[4 * i + 2], kept[4 * i + 3])

    return Kernel(walk_chunks, "i64 i64 i64 i64 i64 i64 i64 i64", _THREADS)


def _fetch(dim: int) -> Any:
    steps, copies = dim // _STEP, dim // 32

    @inline
    def fetch(place, reads, adds, chunk, part, thread):  # type: ignore[no-untyped-def]
        """Start copying slice `part` of a chunk: 64 rows x 32 values of reads, or 16 whole rows of adds."""
        if part < steps:
            line, eighth = thread >> 3, thread & 7
            source = reads + ((chunk * CHUNK + line) * dim + part * _STEP) * 4 + eighth * 16
            target = place + line * (_PITCH * 4) + eighth * 16
            for i in range(4):
                copy_async(target + i * (16 * _PITCH * 4), source + i * (16 * dim * 4), 16)
        else:
            source = adds + (chunk * CHUNK + (part - steps) * _TOKENS) * dim * 4 + thread * 16
            for i in range(copies):
                copy_async(place + thread * 16 + i * (_THREADS * 16), source + i * (_THREADS * 16), 16)
        copy_commit()

    return fetch


def _subtract() -> Any:
    @inline
    def subtract(sums, buffers, start, columns, row, across, down):  # type: ignore[no-untyped-def]
        """sums[i] -= 32 values of row down + 16 i of reads, times rows `row` .. of the state."""
        for k in range(0, _STEP, 4):
            a, b = _row_of(columns, row + k, across), _row_of(columns, row + k + 1, across)
            c, d = _row_of(columns, row + k + 2, across), _row_of(columns, row + k + 3, across)
            for i in range(4):
                w = load_shared_float4(buffers, start + (down + 16 * i) * _PITCH + k)
                for j in range(4):
                    low = fused(-w[1], b[j], fused(-w[0], a[j], sums[4 * i + j]))
                    sums[4 * i + j] = fused(-w[3], d[j], fused(-w[2], c[j], low))

    return subtract


def _add_tokens(dim: int) -> Any:
    rows = dim // 16

    @inline
    def add_tokens(kept, buffers, start, fresh, token, across, down):  # type: ignore[no-untyped-def]
        """kept += what 16 tokens from `token` on add to this thread's part of the state."""
        for t in range(_TOKENS):
            w = _row_of(fresh, token + t, across)
            for i in range(rows):
                key = buffers[start + t * dim + down + 16 * i]
                for j in range(4):
                    kept[4 * i + j] = fused(key, w[j], kept[4 * i + j])

    return add_tokens


@inline
def _row_of(shared, row, across):  # type: ignore[no-untyped-def]
    return load_shared_float4(shared, row * _COLUMNS + across)


@inline
def _put(shared, at, values, i):  # type: ignore[no-untyped-def]
    shared[at], shared[at + 1], shared[at + 2], shared[at + 3] = values[i], values[i + 1], values[i + 2], values[i + 3]
