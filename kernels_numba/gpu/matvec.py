"""A few float32 rows times quantized matrices that a table of addresses names, on the GPU; float32 sums. Knows no expert and no tier.

An address may be of VRAM or of page-locked host memory (UVA): the bytes are read in place, once. A row's bits depend on the row
and the matrix alone: one warp makes one output, and its sums have one order.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels_numba.device import Kernel, address, cuda
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.codebooks import codebook_address
from kernels_numba.gpu.decode import FLOATS, decoder, single_value
from kernels_numba.gpu.jobs import MAX_ROWS, Jobs
from kernels_numba.gpu.warp import lane_sum
from kernels_numba.ptx import fused, load16, load32, load_float, load_float4, load_int, load_long, store_float

_WARPS = 4
_PARAMETERS = "i64 i64 i64 i64 i64 i64 i64 i64 i64"
_ZERO = np.float32(0)
_warp_sum = lane_sum(32)


def matvec(x: Any, jobs: Jobs, format_name: str, num_outs: int, out: Any, planar: bool = False, stream: int = 0) -> None:
    """out[j, s] = W_j x[rows[j, s]]: x float32 [R, K], 16-byte aligned; W_j [num_outs, K] at jobs.table[j] + jobs.offset.

    out: float32 [J, S, num_outs]; slots without a row, and jobs whose table entry is 0, are left as they were. Each sum errs by at
    most K / 32 + 13 roundings.
    """
    width = int(x.shape[1])
    FORMATS[format_name].row_bytes(width)
    pointers = (address("x", x, "float32", (-1, width)), *jobs.addresses(),
                address("out", out, "float32", (jobs.count, jobs.slots, num_outs)))  # fmt: skip
    rows = min(MAX_ROWS, 1 << (jobs.slots - 1).bit_length()) if jobs.slots else 1
    kernel = matvec_kernel(format_name, num_outs, width, rows, planar, jobs.alignment)
    blocks = -(-jobs.count * num_outs // _WARPS)
    for first in range(0, jobs.slots, rows):
        kernel.launch(blocks, stream, *pointers, jobs.offset, jobs.count, jobs.slots, first, codebook_address(format_name))


@functools.cache
def matvec_kernel(format_name: str, num_outs: int, width: int, rows: int, planar: bool, alignment: int) -> Kernel:
    """One warp an output, `rows` rows of x at once."""
    args = format_name, num_outs, width, rows
    return Kernel(_singles(*args) if width % 8 else _parts(*args, planar, alignment), _PARAMETERS, 32 * _WARPS)


def _parts(format_name: str, num_outs: int, width: int, rows: int, planar: bool, alignment: int) -> Callable[..., None]:
    use, form = decoder(format_name, planar, alignment), FORMATS[format_name]
    load, values = use.load, use.values
    is_float = format_name in FLOATS
    shift = 0 if is_float else (form.block_values // 8).bit_length() - 1
    blocks_a_row, num_blocks, parts = width // form.block_values, num_outs * width // form.block_values, width // 8

    def matvec_parts(x, table, row_table, out, offset, jobs, slots, first, codebook):  # type: ignore[no-untyped-def]
        lane = cuda.threadIdx.x & 31
        unit = np.int64(cuda.blockIdx.x) * _WARPS + (cuda.threadIdx.x >> 5)
        job = unit // num_outs
        n = unit - job * num_outs
        sums = cuda.local.array(rows, np.float32)
        for r in range(rows):
            sums[r] = _ZERO
        place = load_long(table + min(job, jobs - 1) * 8)
        held = job < jobs and place != 0
        if held:
            base = place + offset
            for i in range(lane, parts, 32):
                block = n * blocks_a_row + (0 if is_float else i >> shift)
                part = i if is_float else i & ((1 << shift) - 1)
                v = values(load(base, num_blocks, block, part, codebook), part)
                for r in range(rows):
                    if first + r < slots:
                        at = x + (max(load_int(row_table + (job * slots + first + r) * 4), 0) * np.int64(width) + i * 8) * 4
                        a, b = load_float4(at), load_float4(at + 16)
                        low = fused(v[3], a[3], fused(v[2], a[2], fused(v[1], a[1], fused(v[0], a[0], sums[r]))))
                        sums[r] = fused(v[7], b[3], fused(v[6], b[2], fused(v[5], b[1], fused(v[4], b[0], low))))
        for r in range(rows):
            total = _warp_sum(sums[r])
            if lane == 0 and held and first + r < slots and load_int(row_table + (job * slots + first + r) * 4) >= 0:
                store_float(out + ((job * slots + first + r) * num_outs + n) * 4, total)

    return matvec_parts


def _singles(format_name: str, num_outs: int, width: int, rows: int) -> Callable[..., None]:
    """For widths that eight does not divide; only float formats have them."""
    widen, load = single_value(format_name), load32 if format_name == "F32" else load16
    size = FORMATS[format_name].block_bytes

    def matvec_singles(x, table, row_table, out, offset, jobs, slots, first, codebook):  # type: ignore[no-untyped-def]
        lane = cuda.threadIdx.x & 31
        unit = np.int64(cuda.blockIdx.x) * _WARPS + (cuda.threadIdx.x >> 5)
        job = unit // num_outs
        n = unit - job * num_outs
        place = load_long(table + min(job, jobs - 1) * 8)
        held = job < jobs and place != 0
        for r in range(rows):
            total = _ZERO
            row = np.int64(-1)
            if held and first + r < slots:
                row = np.int64(load_int(row_table + (job * slots + first + r) * 4))
            if row >= 0:
                base = place + offset + n * (width * size)
                for i in range(lane, width, 32):
                    total = fused(widen(load(base + i * size)), load_float(x + (row * width + i) * 4), total)
            total = _warp_sum(total)
            if lane == 0 and row >= 0:
                store_float(out + ((job * slots + first + r) * num_outs + n) * 4, total)

    return matvec_singles
