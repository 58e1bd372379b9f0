"""A few int8 rows times quantized matrices that a table of addresses names, on the GPU, with dp4a. Knows no expert and no tier.

As matvec.py, for rows from quantize_rows: the integer sums are exact, each is scaled in float32. A row's bits depend on the row and
the matrix alone: a fixed group of lanes makes one output, and its sums have one order.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import float32, int32

from kernels_numba.device import Kernel, address, cuda, inline
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.codebooks import codebook_address
from kernels_numba.gpu.codes import transposed
from kernels_numba.gpu.jobs import MAX_ROWS, Jobs
from kernels_numba.gpu.units import units
from kernels_numba.gpu.warp import lane_sum
from kernels_numba.ptx import (
    dp4a,
    fused,
    half_to_float,
    load16,
    load128,
    load_float,
    load_int,
    load_long,
    load_shared128,
    multiply,
    store_float,
    store_shared128,
    to_float,
)  # fmt: skip

_THREADS = 128
_ONES = 0x01010101
_SHARED_BYTES = 48 * 1024
_HEAD_BYTES = 10 * 1024
_BLOCKS_WANTED = 600
_ZERO = np.float32(0)


def matvec_q8(
    codes: Any, scales: Any, jobs: Jobs, format_name: str, num_outs: int, out: Any, planar: bool = False, stream: int = 0
) -> None:
    """out[j, s] = W_j x[rows[j, s]] with x = codes * scales: codes int8 [R, K], scales float32 [R, K / 32], of quantize_rows.

    W_j [num_outs, K] at jobs.table[j] + jobs.offset; out float32 [J, S, num_outs], slots without a row, and jobs whose table entry
    is 0, left as they were.
    K is a multiple of 32; each output errs by at most (K / 16 + 8) roundings of its terms.
    """
    width = int(codes.shape[1])
    FORMATS[format_name].row_bytes(width)
    pointers = (address("codes", codes, "int8", (-1, width)), address("scales", scales, "float32", (int(codes.shape[0]), width // 32)),
                *jobs.addresses(), address("out", out, "float32", (jobs.count, jobs.slots, num_outs)))  # fmt: skip
    wanted = min(MAX_ROWS, 1 << (jobs.slots - 1).bit_length()) if jobs.slots else 1
    shape = fitting(format_name, num_outs, width, planar, wanted, jobs.count)
    kernel = matvec_q8_kernel(format_name, shape, planar, jobs.alignment)
    for first in range(0, jobs.slots, shape.rows):
        kernel.launch(jobs.count * shape.tiles, stream, *pointers, jobs.offset, jobs.slots, first, codebook_address(format_name))


@dataclass(frozen=True)
class Shape:
    """How one launch is cut: a block makes `tile` outputs of a job, a group of `lanes` lanes makes one."""

    num_outs: int
    width: int
    rows: int
    unit: int
    lanes: int
    tile: int
    staged: bool  # the tile's scales are read at once, into shared memory

    @property
    def tiles(self) -> int:
        return -(-self.num_outs // self.tile)

    @property
    def stride(self) -> int:
        """Words from one unit's activations to the next in shared memory: lanes that read side by side meet no bank twice."""
        return self.unit // 4 + (4 if self.unit > 16 else 0)

    @property
    def row_words(self) -> int:
        return self.width // self.unit * self.stride

    @property
    def shared_bytes(self) -> int:
        heads = self.tile * self.width // max(self.unit, 32) * 4 if self.staged else 0
        return self.rows * (self.row_words * 4 + self.width // 32 * 8) + heads


@functools.cache
def fitting(format_name: str, num_outs: int, width: int, planar: bool, rows: int, jobs: int) -> Shape:
    """The shape for up to `rows` rows at once; fewer where shared memory is short. What decides bits, `lanes`, is of format and width.

    Large tiles read activations seldom; few jobs get small ones, so that a GPU's multiprocessors all have some.
    """
    use = units(format_name, planar, 16)
    count = width // use.values
    lanes = next(n for n in (32, 16, 8, 4, 2, 1) if -(-count // n) * n * 8 <= count * 9)  # at most an eighth of them idle
    staged, groups = planar and use.has_head, _THREADS // lanes
    row_heads = width // max(use.values, 32) * 4
    tile = max(groups, 256)
    while tile > groups and ((staged and tile * row_heads > _HEAD_BYTES) or jobs * -(-num_outs // tile) < _BLOCKS_WANTED):
        tile //= 2
    staged = staged and tile * row_heads <= _HEAD_BYTES
    while rows > 1 and Shape(num_outs, width, rows, use.values, lanes, tile, staged).shared_bytes > _SHARED_BYTES:
        rows //= 2
    shape = Shape(num_outs, width, rows, use.values, lanes, tile, staged)
    if width % 32 or shape.shared_bytes > _SHARED_BYTES:
        raise ValueError(f"rows of {width} values: wanted a multiple of 32, and at most {_SHARED_BYTES} bytes of them as 8-bit")
    return shape


@functools.cache
def matvec_q8_kernel(format_name: str, shape: Shape, planar: bool, alignment: int) -> Kernel:
    """A block a tile of one job's outputs."""
    use = units(format_name, planar, alignment)
    load, words, scale, least, head, bias = use.load, use.words, use.scale, use.least, use.head, use.bias
    has_least, has_head, staged = use.has_least, use.has_head, shape.staged
    num_outs, width, rows, lanes, tile, stride, row_words = (
        shape.num_outs, shape.width, shape.rows, shape.lanes, shape.tile, shape.stride, shape.row_words)  # fmt: skip
    groups, tiles, count = width // 32, shape.tiles, width // shape.unit
    steps, teams, last = -(-count // lanes), _THREADS // lanes, count - 1
    turns = tile // teams
    subs, group_words = max(1, shape.unit // 32), min(shape.unit, 32) // 4
    block_units = max(1, FORMATS[format_name].block_values // shape.unit) if has_head else 1
    heads_a_row, halved = count // block_units, shape.unit < 32
    activation_words, row_groups, head_count = rows * row_words, rows * groups, tile * heads_a_row if staged else 1
    num_blocks = num_outs * width // FORMATS[format_name].block_values
    group_sum, dot, put = lane_sum(lanes), _dot(group_words), _put_group(shape.unit, stride, use.mixed)

    def matvec_q8_tile(codes, scales, table, row_table, out, offset, slots, first, codebook):  # type: ignore[no-untyped-def]
        activations = cuda.shared.array(activation_words, int32)
        group_scales = cuda.shared.array(row_groups, float32)
        group_sums = cuda.shared.array(row_groups, int32)
        heads = cuda.shared.array(head_count, float32)
        thread = cuda.threadIdx.x
        job = np.int64(cuda.blockIdx.x) // tiles
        start = (np.int64(cuda.blockIdx.x) - job * tiles) * tile
        place = load_long(table + job * 8)
        if place == 0:
            return
        base = place + offset
        for i in range(thread, row_groups, _THREADS):
            r = i // groups
            g = i - r * groups
            if first + r < slots:
                row = max(load_int(row_table + (job * slots + first + r) * 4), 0)
                group_sums[i] = put(activations, r * row_words, g, codes + row * np.int64(width) + g * 32)
                group_scales[i] = load_float(scales + (row * np.int64(groups) + g) * 4)
        if staged:
            for i in range(thread, min(tile, num_outs - start) * heads_a_row, _THREADS):
                heads[i] = half_to_float(load16(head(base, num_blocks, start * heads_a_row + i)))
        cuda.syncthreads()
        team, lane = thread // lanes, thread % lanes
        sums = cuda.local.array(rows, np.float32)
        raw = load(base, num_blocks, min(start + team, num_outs - 1) * count + min(lane, last), codebook)
        for turn in range(min(turns, (num_outs - start + teams - 1) // teams)):
            local = turn * teams + team
            n = min(start + local, num_outs - 1)
            for r in range(rows):
                sums[r] = _ZERO
            for step in range(steps):
                # the next unit is asked for before this one is used
                more = step + 1 < steps
                next_n = n if more else min(start + local + teams, num_outs - 1)
                following = load(base, num_blocks, next_n * count + min((step + 1) * lanes + lane if more else lane, last), codebook)
                unit = step * lanes + lane
                if unit < count:
                    if staged:
                        weight = heads[(n - start) * heads_a_row + unit // block_units]
                    elif has_head:
                        weight = half_to_float(load16(head(base, num_blocks, n * heads_a_row + unit // block_units)))
                    else:
                        weight = scale(raw)
                    for sub in range(subs):
                        coded = words(raw, sub)
                        for r in range(rows):
                            at = r * row_words + unit * stride + sub * 8
                            group = r * groups + ((unit >> 1) if halved else unit * subs + sub)
                            total = dot(coded, activations, at)
                            if bias:
                                total -= bias * group_sums[group]
                            each = group_scales[group]
                            sums[r] = fused(multiply(weight, each), to_float(total), sums[r])
                            if has_least:
                                sums[r] = fused(multiply(-least(raw), each), to_float(dot(_ALL_ONES, activations, at)), sums[r])
                raw = following
            for r in range(rows):
                total_r = group_sum(sums[r])
                held = start + local < num_outs and first + r < slots
                if lane == 0 and held and load_int(row_table + (job * slots + first + r) * 4) >= 0:
                    store_float(out + ((job * slots + first + r) * num_outs + n) * 4, total_r)

    return Kernel(matvec_q8_tile, "i64 i64 i64 i64 i64 i64 i64 i64 i64", _THREADS, 8 if rows == 1 else 1)


_ALL_ONES = (_ONES, _ONES, _ONES, _ONES)


def _dot(num_words: int) -> Any:
    """Device function (weight words, shared activations, index): their integer dot product."""

    @inline
    def four(w, activations, at):  # type: ignore[no-untyped-def]
        a = load_shared128(activations, at)
        return dp4a(w[3], a[3], dp4a(w[2], a[2], dp4a(w[1], a[1], dp4a(w[0], a[0], 0))))

    @inline
    def eight(w, activations, at):  # type: ignore[no-untyped-def]
        a, b = load_shared128(activations, at), load_shared128(activations, at + 4)
        low = dp4a(w[3], a[3], dp4a(w[2], a[2], dp4a(w[1], a[1], dp4a(w[0], a[0], 0))))
        return dp4a(w[7], b[3], dp4a(w[6], b[2], dp4a(w[5], b[1], dp4a(w[4], b[0], low))))

    return four if num_words == 4 else eight


def _put_group(unit: int, stride: int, mixed: bool) -> Any:
    """Device function: copy 32 activations from an address into shared memory, where the unit that uses them looks; gives their sum."""

    @inline
    def put(activations, row, group, at):  # type: ignore[no-untyped-def]
        a, b = load128(at), load128(at + 16)
        if unit == 64:
            place = row + (group >> 1) * stride + (group & 1) * 8
        elif unit == 32:
            place = row + group * stride
        else:
            place = row + group * 8
        if mixed:
            _store(activations, place, transposed(a))
            _store(activations, place + 4, transposed(b))
        else:
            _store(activations, place, a)
            _store(activations, place + 4, b)
        low = dp4a(a[3], _ONES, dp4a(a[2], _ONES, dp4a(a[1], _ONES, dp4a(a[0], _ONES, 0))))
        return dp4a(b[3], _ONES, dp4a(b[2], _ONES, dp4a(b[1], _ONES, dp4a(b[0], _ONES, low))))

    return put


@inline
def _store(activations, place, w):  # type: ignore[no-untyped-def]
    store_shared128(activations, place, w[0], w[1], w[2], w[3])
