"""float32 rows to int8 with one float32 scale for 32 values, or to what these stand for, on the GPU. Knows no weights."""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels_numba.device import Kernel, address, cuda
from kernels_numba.gpu.warp import warp_largest
from kernels_numba.ptx import as_float, as_word, bits, divide, multiply, nearest, reload_float, store8, store_float, to_float

GROUP = 32
_THREADS = 256
_ZERO, _LARGEST = np.float32(0), np.float32(127)


def quantize_rows(x: Any, codes: Any, scales: Any, stream: int = 0) -> None:
    """x float32 [R, K] -> codes int8 [R, K], scales float32 [R, ceil(K / 32)], bit for bit reference_ops.quantize_rows.

    A group with a NaN or an infinity has that for its scale and zeros for its codes, so that every product with it is NaN.
    """
    rows, width = (int(size) for size in x.shape)
    groups = -(-width // GROUP)
    pointers = (address("x", x, "float32", (rows, width)), address("codes", codes, "int8", (rows, width)),
                address("scales", scales, "float32", (rows, groups)))  # fmt: skip
    total = rows * groups
    quantize_kernel(True).launch(-(-total * GROUP // _THREADS), stream, *pointers, total, width, groups)


def round_rows(x: Any, out: Any, stream: int = 0) -> None:
    """x float32 [R, K] -> out float32 [R, K], code * scale of each value: bit for bit reference_ops.round_rows. out may be x."""
    rows, width = (int(size) for size in x.shape)
    groups = -(-width // GROUP)
    pointers = address("x", x, "float32", (rows, width)), address("out", out, "float32", (rows, width)), 0
    total = rows * groups
    quantize_kernel(False).launch(-(-total * GROUP // _THREADS), stream, *pointers, total, width, groups)


@functools.cache
def quantize_kernel(to_codes: bool) -> Kernel:
    """A warp a group of 32 values; to codes and scales, or to the codes' values in `out`."""

    def quantize_groups(x, out, scales, total, width, groups):  # type: ignore[no-untyped-def]
        lane = cuda.threadIdx.x & 31
        unit = np.int64(cuda.blockIdx.x) * (_THREADS // 32) + (cuda.threadIdx.x >> 5)
        row = unit // groups
        column = (unit - row * groups) * GROUP + lane
        inside = unit < total and column < width
        value = _ZERO
        if inside:
            value = reload_float(x + (row * width + column) * 4)
        scale = divide(as_float(warp_largest(bits(as_word(value), 0, 0x7FFFFFFF))), _LARGEST)
        if inside:
            code = 0
            if scale > _ZERO:
                code = min(max(nearest(divide(value, scale)), -127), 127)
            if not to_codes:
                store_float(out + (row * width + column) * 4, multiply(to_float(code), scale))
            else:
                store8(out + row * width + column, code)
                if lane == 0:
                    store_float(scales + unit * 4, scale)

    return Kernel(quantize_groups, "i64 i64 i64 i64 i64 i64", _THREADS)
