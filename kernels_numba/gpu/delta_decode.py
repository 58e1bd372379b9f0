"""A gated delta net's ops between its matrices, for a few consecutive tokens of one sequence, on the GPU. Knows no matrices.

Each op moves its own state on in place and reads it once for all rows, so that a token costs the state's bytes twice. R rows, K key
heads, V value heads, D values a head; value head v reads key head v % K.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import float32

from kernels_numba.device import WIDE, Kernel, address, cuda, inline
from kernels_numba.gpu.moe import sigmoid, silu
from kernels_numba.gpu.warp import lane_sum, quarter_sum
from kernels_numba.ptx import (
    add,
    divide,
    fused,
    load_float,
    load_float4,
    load_shared_float4,
    multiply,
    reload_float,
    reload_float4,
    store_float,
    store_float4,
)  # fmt: skip

GATES = ("silu", "sigmoid")
_MAX_DIM, _MAX_TAPS = 256, 8
_THREADS = 128  # of the step: 8 across, four columns each, and 16 down
_COLUMNS, _DOWN = 32, 16
_SUMS = 2 * _COLUMNS + 4  # of one warp: what it read at the key and at the query, and key . query
_BUFFER = 4 * _SUMS
_BUFFERS = 2 * _BUFFER
_ZERO, _ONE, _TINY = np.float32(0), np.float32(1), np.float32(1e-6)
_warp_sum = lane_sum(32)


def delta_conv(mixed: Any, conv: Any, weight: Any, key_heads: int, dim: int, out: Any, stream: int = 0) -> None:
    """out = silu of the causal depthwise convolution of mixed[:, :C] over tokens; its q and k heads to length 1, q times D^-0.5.

    mixed float32 [R, N], conv [taps - 1, C] the inputs before it, moved on by R rows, weight [C, taps], out [R, C], which is no part
    of mixed: q (K heads of D), k (K heads), v. At most 8 taps, D at most 256. Length: sqrt(the sum of squares + 1e-6).
    """
    (rows, width), (channels, taps) = (int(size) for size in mixed.shape), (int(size) for size in weight.shape)
    if channels % dim or dim > _MAX_DIM or not 2 <= taps <= _MAX_TAPS or not 2 * key_heads * dim <= channels <= width:
        raise ValueError(
            f"{taps} taps over {channels} of {width} channels in heads of {dim}, of which {2 * key_heads} are keys and queries"
        )
    pointers = (address("mixed", mixed, "float32", (rows, width)), address("conv", conv, "float32", (taps - 1, channels)),
                address("weight", weight, "float32", (channels, taps)), address("out", out, "float32", (rows, channels)))  # fmt: skip
    if rows:
        conv_kernel(taps, dim).launch(channels // dim, stream, *pointers, rows, width, channels, key_heads)


def delta_step(qkv: Any, mixed: Any, first: int, decay: Any, bias: Any, state: Any, key_heads: int, read: Any, stream: int = 0) -> None:
    """For each row in turn and each value head: S *= exp(decay softplus(alpha + bias)); S += k^T sigmoid(beta) (v - k S); read = q S.

    qkv float32 [R, C] as delta_conv leaves it, mixed [R, N] with alpha in the V columns from `first` on, then beta; decay and bias [V],
    state [V, D, D] (key x value), moved on, read [R, V * D]. D is a multiple of 4, at most 256.
    """
    (rows, width), (heads, dim) = (int(size) for size in mixed.shape), (int(size) for size in state.shape[:2])
    if dim % 4 or dim > _MAX_DIM or not key_heads or heads % key_heads:
        raise ValueError(f"{heads} value heads and {key_heads} key heads of {dim} values: wanted a multiple of 4 to {_MAX_DIM}")
    if not 0 <= first <= width - 2 * heads:
        raise ValueError(f"rates of {heads} heads from column {first} of {width} on: wanted {2 * heads} columns")
    pointers = (
        address("qkv", qkv, "float32", (rows, (2 * key_heads + heads) * dim)),
        address("mixed", mixed, "float32", (rows, width)),
        address("decay", decay, "float32", (heads,)),
        address("bias", bias, "float32", (heads,)),
        address("state", state, "float32", (heads, dim, dim)),
        address("read", read, "float32", (rows, heads * dim)),
    )
    if any(pointer % 16 for pointer in (pointers[0], *pointers[4:])):
        raise ValueError("qkv, state and read must start at multiples of 16 bytes")
    if rows:
        step_kernel(dim).launch(heads * -(-dim // _COLUMNS), stream, *pointers, rows, heads, key_heads, width, first)


def delta_norm(read: Any, mixed: Any, offset: int, weight: Any, eps: float, gate: str, out: Any, stream: int = 0) -> None:
    """out = read / sqrt(mean of its head's squares + eps) * weight * gate(mixed[:, offset : offset + V * D]).

    read, out float32 [R, V * D], which may be one array; mixed [R, N], weight [D]; gate "silu" or "sigmoid".
    """
    (rows, width), columns, dim = (int(size) for size in read.shape), int(mixed.shape[1]), int(weight.shape[0])
    if gate not in GATES or width % dim or not 0 <= offset <= columns - width:
        raise ValueError(
            f"{width} values in heads of {dim}, gated by {gate} of columns {offset} .. of {columns}: wanted {' or '.join(GATES)}"
        )
    pointers = (address("read", read, "float32", (rows, width)), address("mixed", mixed, "float32", (rows, columns)),
                address("weight", weight, "float32", (dim,)), address("out", out, "float32", (rows, width)))  # fmt: skip
    norm_kernel(dim, gate).launch(rows * (width // dim), stream, *pointers, width // dim, columns, offset, eps)


@functools.cache
def conv_kernel(taps: int, dim: int) -> Kernel:
    """A block of threads a head, a thread a channel: the thread that reads a channel's past is the one that moves it on."""
    past, warps = taps - 1, -(-dim // 32)
    squares_values, root = 2 * warps, np.float32(dim**-0.5)

    def convolve_head(mixed, conv, weight, out, rows, width, channels, key_heads):  # type: ignore[no-untyped-def]
        squares = cuda.shared.array(squares_values, float32)  # of each warp; of even rows, then of odd ones
        thread, head = np.int32(cuda.threadIdx.x), np.int64(cuda.blockIdx.x)
        channel, inside = head * dim + thread, thread < dim
        window, taps_of = cuda.local.array(taps, np.float32), cuda.local.array(taps, np.float32)
        for j in range(taps):
            window[j], taps_of[j] = _ZERO, _ZERO
        if inside:
            for j in range(past):
                window[j + 1] = reload_float(conv + (j * channels + channel) * 4)
            for j in range(taps):
                taps_of[j] = load_float(weight + (channel * taps + j) * 4)
        for r in range(rows):
            for j in range(past):
                window[j] = window[j + 1]
            if inside:
                window[past] = load_float(mixed + (r * width + channel) * 4)
            total = multiply(window[0], taps_of[0])
            for j in range(past):
                total = fused(window[j + 1], taps_of[j + 1], total)
            value = silu(total)
            if head < 2 * key_heads:  # the whole block's
                square = _warp_sum(multiply(value, value))  # 0 of a thread without a channel
                if thread & 31 == 0:
                    squares[(r & 1) * warps + (thread >> 5)] = square
                # two rows on this place is written again, by threads that have passed the next row's barrier: after all have read it
                cuda.syncthreads()
                total = _ZERO
                for i in range(warps):
                    total = add(total, squares[(r & 1) * warps + i])
                value = divide(value, np.float32(math.sqrt(add(total, _TINY))))
                if head < key_heads:
                    value = multiply(value, root)
            if inside:
                store_float(out + (r * channels + channel) * 4, value)
        if inside:
            for j in range(past):
                store_float(conv + (j * channels + channel) * 4, window[j + 1])

    return Kernel(convolve_head, "i64 i64 i64 i64 i64 i64 i64 i64", 32 * warps)


@functools.cache
def step_kernel(dim: int) -> Kernel:
    """A block of threads a value head and 32 columns of its state, which no other column needs; the columns stay in registers.

    What a row reads is made in the same pass as what its key meets: q S = q S' + (q . k) added, for S = S' + k^T added.
    """
    tiles, own = -(-dim // _COLUMNS), -(-dim // _DOWN)
    held_values, across_all = 4 * own, dim % _COLUMNS == 0 and dim % _DOWN == 0

    def step_columns(qkv, mixed, decay, bias, state, read, rows, heads, key_heads, width, first):  # type: ignore[no-untyped-def]
        sums = cuda.shared.array(_BUFFERS, float32, WIDE)  # of the four warps; of even rows, then of odd ones
        thread = np.int32(cuda.threadIdx.x)
        lane, warp, across, down = thread & 31, thread >> 5, (thread & 7) * 4, thread >> 3
        head = np.int64(cuda.blockIdx.x) // tiles
        column = np.int32(np.int64(cuda.blockIdx.x) - head * tiles) * _COLUMNS + across
        mine = across_all or column < dim
        held, key = cuda.local.array(held_values, np.float32), cuda.local.array(own, np.float32)
        for i in range(own):
            row = down + _DOWN * i
            a = _ZERO, _ZERO, _ZERO, _ZERO
            if across_all or (mine and row < dim):
                a = reload_float4(state + ((head * dim + row) * dim + column) * 4)
            held[4 * i], held[4 * i + 1], held[4 * i + 2], held[4 * i + 3] = a[0], a[1], a[2], a[3]
        shared_head = head % key_heads
        slope, shift = load_float(decay + head * 4), load_float(bias + head * 4)
        met, got = cuda.local.array(4, np.float32), cuda.local.array(4, np.float32)
        for r in range(rows):
            at = qkv + r * (2 * key_heads + heads) * dim * 4
            query_at, key_at = at + shared_head * dim * 4, at + (key_heads + shared_head) * dim * 4
            wanted = _ZERO, _ZERO, _ZERO, _ZERO
            if mine:
                wanted = load_float4(at + ((2 * key_heads + head) * dim + column) * 4)
            rates = mixed + (r * width + first + head) * 4
            alpha, beta = load_float(rates), load_float(rates + heads * 4)
            kept = np.float32(math.exp(multiply(slope, _softplus(add(alpha, shift)))))
            for j in range(4):
                met[j], got[j] = _ZERO, _ZERO
            along = _ZERO  # key . query
            for i in range(own):
                row = down + _DOWN * i
                k, q = _ZERO, _ZERO
                if across_all or row < dim:
                    k, q = load_float(key_at + row * 4), load_float(query_at + row * 4)
                key[i], along = k, fused(k, q, along)
                for j in range(4):
                    value = multiply(held[4 * i + j], kept)
                    held[4 * i + j], met[j], got[j] = value, fused(k, value, met[j]), fused(q, value, got[j])
            place = np.int32(r & 1) * _BUFFER + warp * _SUMS
            along = quarter_sum(along)
            for j in range(4):
                met[j], got[j] = quarter_sum(met[j]), quarter_sum(got[j])
                if lane < 8:
                    sums[place + across + j], sums[place + _COLUMNS + across + j] = met[j], got[j]
            if lane == 0:
                sums[place + 2 * _COLUMNS] = along
            # two rows on this place is written again, by threads that have passed the next row's barrier: after all have read it
            cuda.syncthreads()
            place = np.int32(r & 1) * _BUFFER
            a, b, along = _four_warps(sums, place + across), _four_warps(sums, place + _COLUMNS + across), _ZERO
            for i in range(4):
                along = add(along, sums[place + i * _SUMS + 2 * _COLUMNS])
            share = sigmoid(beta)
            for j in range(4):
                met[j] = multiply(wanted[j] - a[j], share)
                got[j] = fused(along, met[j], b[j])
            for i in range(own):
                for j in range(4):
                    held[4 * i + j] = fused(key[i], met[j], held[4 * i + j])
            if mine and thread < 8:
                store_float4(read + ((r * heads + head) * dim + column) * 4, got[0], got[1], got[2], got[3])
        for i in range(own):
            row = down + _DOWN * i
            if across_all or (mine and row < dim):
                at = state + ((head * dim + row) * dim + column) * 4
                store_float4(at, held[4 * i], held[4 * i + 1], held[4 * i + 2], held[4 * i + 3])

    return Kernel(step_columns, "i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64", _THREADS)


@functools.cache
def norm_kernel(dim: int, gate: str) -> Kernel:
    """A warp a row's head."""
    own, open_gate = -(-dim // 32), silu if gate == "silu" else sigmoid
    num_values = np.float32(dim)

    def norm_head(read, mixed, weight, out, heads, columns, offset, eps):  # type: ignore[no-untyped-def]
        lane, unit = np.int32(cuda.threadIdx.x), np.int64(cuda.blockIdx.x)
        row = unit // heads
        gate_at = mixed + (row * columns + offset + (unit - row * heads) * dim) * 4
        values = cuda.local.array(own, np.float32)
        square = _ZERO
        for i in range(own):
            values[i] = _ZERO
            if lane + 32 * i < dim:
                values[i] = reload_float(read + (unit * dim + lane + 32 * i) * 4)
            square = fused(values[i], values[i], square)
        scale = divide(_ONE, np.float32(math.sqrt(add(divide(_warp_sum(square), num_values), eps))))
        for i in range(own):
            if lane + 32 * i < dim:
                share = open_gate(load_float(gate_at + (lane + 32 * i) * 4))
                value = multiply(multiply(values[i], scale), load_float(weight + (lane + 32 * i) * 4))
                store_float(out + (unit * dim + lane + 32 * i) * 4, multiply(value, share))

    return Kernel(norm_head, "i64 i64 i64 i64 i64 i64 i64 f32", 32)


@inline
def _softplus(value):  # type: ignore[no-untyped-def]
    """log(1 + exp(value)), which is value for large ones."""
    return value if value > np.float32(20) else np.float32(math.log1p(np.float32(math.exp(value))))


@inline
def _four_warps(sums, at):  # type: ignore[no-untyped-def]
    """Four sums over the four warps."""
    a, b = load_shared_float4(sums, at), load_shared_float4(sums, at + _SUMS)
    c, d = load_shared_float4(sums, at + 2 * _SUMS), load_shared_float4(sums, at + 3 * _SUMS)
    return (add(add(add(a[0], b[0]), c[0]), d[0]), add(add(add(a[1], b[1]), c[1]), d[1]),
            add(add(add(a[2], b[2]), c[2]), d[2]), add(add(add(a[3], b[3]), c[3]), d[3]))  # fmt: skip
