"""Hyper-connections of a token on the GPU: a block's output into the streams, and their norms. Knows no weights.

R rows, S streams, H hidden. A value's bits depend on its row alone: every sum has one order.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import float32

from kernels_numba.device import Kernel, address, cuda
from kernels_numba.gpu.warp import lane_sum
from kernels_numba.ptx import add, divide, load_float, multiply, reload_float, store_float

_NORM_THREADS = 512
_WARPS = _NORM_THREADS // 32
_ZERO = np.float32(0)
_warp_sum = lane_sum(32)


def hyper_inject_norm(streams: Any, block: Any, strengths: Any, weight: Any, eps: float, normed: Any, stream: int = 0) -> None:
    """streams [R, S * H] += block [R, H] * strengths [R, S] in place, product and sum rounded apart; normed [R, S * H].

    normed = streams / sqrt(mean of a stream's squares + eps) * weight [S, H]; all float32. Errs by at most H / 512 + 20 roundings.
    """
    rows, (count, width) = int(streams.shape[0]), (int(size) for size in weight.shape)
    pointers = (address("streams", streams, "float32", (rows, count * width)), address("block", block, "float32", (rows, width)),
                address("strengths", strengths, "float32", (rows, count)), address("weight", weight, "float32", (count, width)),
                address("normed", normed, "float32", (rows, count * width)))  # fmt: skip
    inject_kernel(count, width).launch(rows * count, stream, *pointers, eps)


@functools.cache
def inject_kernel(count: int, width: int) -> Kernel:
    """A block of threads a stream of a row; a thread keeps its values in registers between the sum and the norm."""
    steps, size = -(-width // _NORM_THREADS), np.float32(width)

    def inject_norm(streams, block, strengths, weight, normed, eps):  # type: ignore[no-untyped-def]
        partial = cuda.shared.array(_WARPS, float32)
        thread, unit = np.int32(cuda.threadIdx.x), np.int64(cuda.blockIdx.x)
        row = unit // count
        at, taken = streams + unit * (width * 4), block + row * (width * 4)
        scales, out = weight + (unit - row * count) * (width * 4), normed + unit * (width * 4)
        strength = load_float(strengths + unit * 4)
        kept = cuda.local.array(steps, np.float32)
        added = cuda.local.array(steps, np.float32)
        factors = cuda.local.array(steps, np.float32)
        for step in range(steps):  # without a branch, and none that the compiler may put off: all loads are under way at once
            i = np.int64(min(thread + step * _NORM_THREADS, width - 1)) * 4
            kept[step], added[step], factors[step] = reload_float(at + i), reload_float(taken + i), reload_float(scales + i)
        total = _ZERO
        for step in range(steps):
            value = add(kept[step], multiply(added[step], strength))
            kept[step] = value if thread + step * _NORM_THREADS < width else _ZERO
            total = add(total, multiply(kept[step], kept[step]))
        for step in range(steps):
            if thread + step * _NORM_THREADS < width:
                store_float(at + np.int64(thread + step * _NORM_THREADS) * 4, kept[step])
        total = _warp_sum(total)
        if thread & 31 == 0:
            partial[thread >> 5] = total
        cuda.syncthreads()
        total = _ZERO
        for warp in range(_WARPS):
            total = add(total, partial[warp])
        root = np.float32(math.sqrt(add(divide(total, size), eps)))
        for step in range(steps):
            if thread + step * _NORM_THREADS < width:
                value = multiply(divide(kept[step], root), factors[step])
                store_float(out + np.int64(thread + step * _NORM_THREADS) * 4, value)

    return Kernel(inject_norm, "i64 i64 i64 i64 i64 f32", _NORM_THREADS)
