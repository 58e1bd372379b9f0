"""The mixture's small ops on the GPU: the shared expert's start, silu(gate) * up, and the weighted sum. Knows no format.

Contributions are added in float32 in ascending expert id, product and sum rounded apart: the same bits whichever way the work was
cut, with no atomics.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from kernels_numba.device import Kernel, address, cuda, inline
from kernels_numba.ptx import add, divide, load_float, load_int, multiply, reload_float, store_float

_THREADS = 256
_ONE = np.float32(1)


@inline
def silu(value):  # type: ignore[no-untyped-def]
    """value * sigmoid(value) in float32."""
    return divide(value, _ONE + np.float32(math.exp(-value)))


@inline
def sigmoid(value):  # type: ignore[no-untyped-def]
    """In float32."""
    return divide(_ONE, _ONE + np.float32(math.exp(-value)))


def silu_multiply(gate: Any, up: Any, out: Any, stream: int = 0) -> None:
    """out = silu(gate) * up; float32, one shape, which out may share with either."""
    shape = tuple(int(size) for size in gate.shape)
    pointers = [address(name, array, "float32", shape) for name, array in (("gate", gate), ("up", up), ("out", out))]
    total = math.prod(shape)
    silu_kernel().launch(-(-total // _THREADS), stream, *pointers, total)


def moe_shared_init(shared: Any, gate: Any, acc: Any, stream: int = 0) -> None:
    """acc = sigmoid(gate)[:, None] * shared: shared, acc float32 [T, H], gate float32 [T], the shared expert's gate before sigmoid."""
    tokens, width = (int(size) for size in shared.shape)
    pointers = (address("shared", shared, "float32", (tokens, width)), address("gate", gate, "float32", (tokens,)),
                address("acc", acc, "float32", (tokens, width)))  # fmt: skip
    shared_init_kernel().launch(-(-tokens * width // _THREADS), stream, *pointers, tokens * width, width)


def moe_scatter_add(y: Any, weights: Any, places: Any, acc: Any, stream: int = 0) -> None:
    """acc[t] += weights[t, j] * y[places[t, j]] for j = 0, 1, ..: y float32 [R, H], weights float32 [T, k], acc float32 [T, H].

    `places` int32 [T, k]: the sorted row of each of a token's experts, the experts in ascending id; -1 for one that y does not hold.
    A layer's experts may come in several calls, in ascending id: the bits are those of one call.
    """
    tokens, slots = (int(size) for size in places.shape)
    width = int(acc.shape[1])
    pointers = (address("y", y, "float32", (-1, width)), address("weights", weights, "float32", (tokens, slots)),
                address("places", places, "int32", (tokens, slots)), address("acc", acc, "float32", (tokens, width)))  # fmt: skip
    scatter_add_kernel().launch(-(-tokens * width // _THREADS), stream, *pointers, tokens * width, width, slots)


@functools.cache
def silu_kernel() -> Kernel:
    """One thread a value."""

    def silu_values(gate, up, out, total):  # type: ignore[no-untyped-def]
        i = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        if i < total:
            store_float(out + i * 4, silu(reload_float(gate + i * 4)) * reload_float(up + i * 4))

    return Kernel(silu_values, "i64 i64 i64 i64", _THREADS)


@functools.cache
def shared_init_kernel() -> Kernel:
    """One thread a value."""

    def shared_init(shared, gate, acc, total, width):  # type: ignore[no-untyped-def]
        i = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        if i < total:
            open_share = sigmoid(load_float(gate + i // width * 4))
            store_float(acc + i * 4, multiply(open_share, load_float(shared + i * 4)))

    return Kernel(shared_init, "i64 i64 i64 i64 i64", _THREADS)


@functools.cache
def scatter_add_kernel() -> Kernel:
    """One thread a value of acc, over all of its token's experts in turn."""

    def scatter_add(y, weights, places, acc, total, width, slots):  # type: ignore[no-untyped-def]
        i = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        if i < total:
            token = i // width
            total_sum = reload_float(acc + i * 4)
            for j in range(slots):
                row = np.int64(load_int(places + (token * slots + j) * 4))
                if row >= 0:
                    value = load_float(y + (row * width + i - token * width) * 4)
                    total_sum = add(total_sum, multiply(load_float(weights + (token * slots + j) * 4), value))
            store_float(acc + i * 4, total_sum)

    return Kernel(scatter_add, "i64 i64 i64 i64 i64 i64 i64", _THREADS)
