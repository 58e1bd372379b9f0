"""A few float32 rows times matrices that lie anywhere in device memory, one under the other, on the GPU; float32 sums. Knows no model.

A team of lanes makes a few outputs: how many lanes share a row's sum follows from its width alone, so that an output's bits depend on
its row of x and its row of weights, never on how many outputs or rows there are.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import float32

from kernels_numba.device import Kernel, address, cuda, inline
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.codebooks import codebook_address
from kernels_numba.gpu.decode import FLOATS, decoder, single_value
from kernels_numba.gpu.jobs import MAX_ROWS
from kernels_numba.gpu.warp import lane_sums
from kernels_numba.ptx import add, fused, load16, load32, load_float, load_float4, load_int, load_long, store_float

_THREADS = 128
_MOST_LANES = 512
_BLOCKS_WANTED = 132  # the multiprocessors of a large GPU; fewer outputs a team where there would be fewer blocks
_PARAMETERS = "i64 i64 i64 i64 i64 i64 i64 i64"
_ZERO = np.float32(0)


@dataclass(frozen=True)
class Stack:
    """Matrices [n_i, K] of one format. `table`: int64 [P] on the device, their addresses, multiples of 16; `ends`: int32 [P] on the

    device, n_0, n_0 + n_1, ..; `num_outs` is the last of them. `planar`: as repack.py orders them, each matrix by itself.
    """

    table: Any
    ends: Any
    num_outs: int
    format_name: str
    width: int
    planar: bool = False

    def __post_init__(self) -> None:
        FORMATS[self.format_name].row_bytes(self.width)
        if self.num_outs < 1 or self.width < 1:
            raise ValueError(f"a stack of {self.num_outs} rows of {self.width} values: wanted at least 1 of both")

    @property
    def count(self) -> int:
        return int(self.table.shape[0])

    def addresses(self) -> tuple[int, int]:
        """Of the table and of the ends, checked."""
        return address("table", self.table, "int64", (self.count,)), address("ends", self.ends, "int32", (self.count,))


def dense_matvec(x: Any, stack: Stack, out: Any, first: int, stream: int = 0) -> None:
    """out[:, first : first + num_outs] = x W^T: x float32 [R, K], 16-byte aligned, out float32 [R, N], W the matrices of the stack.

    The other columns of out stay as they are. Each sum errs by at most K / 32 + 13 roundings of its terms.
    """
    rows, (out_rows, out_width) = int(x.shape[0]), (int(size) for size in out.shape)
    if out_rows != rows or not 0 <= first <= out_width - stack.num_outs:
        raise ValueError(f"{rows} rows of {stack.num_outs} outputs from column {first} on do not fit into {out_rows} rows of {out_width}")
    source, target = address("x", x, "float32", (rows, stack.width)), address("out", out, "float32", (rows, out_width))
    if source % 16:
        raise ValueError("x must start at a multiple of 16 bytes")
    for begin in range(0, rows, MAX_ROWS):
        now = min(rows - begin, MAX_ROWS)
        shape = cut(stack.width, stack.num_outs)
        kernel = dense_kernel(stack.format_name, shape, now, stack.count, stack.planar)
        places = source + begin * stack.width * 4, *stack.addresses(), target + begin * out_width * 4
        kernel.launch(shape.blocks(stack.num_outs), stream, *places, stack.num_outs, out_width, first, codebook_address(stack.format_name))


@dataclass(frozen=True)
class Cut:
    """How the work is cut: `lanes` lanes, a team, make `outs` neighbouring outputs; a block has whole teams."""

    width: int
    lanes: int
    outs: int

    @property
    def threads(self) -> int:
        return max(self.lanes, _THREADS)

    @property
    def teams(self) -> int:
        return self.threads // self.lanes

    def blocks(self, num_outs: int) -> int:
        return -(-num_outs // (self.teams * self.outs))


@functools.cache
def cut(width: int, num_outs: int) -> Cut:
    """The lanes, on which bits depend, follow from the width alone. A lane takes eight values a step, at least two steps where it can."""
    if width % 8:
        return Cut(width, 32, 1)
    parts = width // 8
    lanes = next(n for n in (32, 16, 8, 4, 2, 1) if -(-parts // n) * n * 8 <= parts * 9)  # at most an eighth of them idle
    while 32 <= lanes < _MOST_LANES and lanes * 4 <= parts:
        lanes *= 2
    return next(Cut(width, lanes, n) for n in (4, 2, 1) if n == 1 or Cut(width, lanes, n).blocks(num_outs) >= _BLOCKS_WANTED)


@functools.cache
def dense_kernel(format_name: str, shape: Cut, rows: int, count: int, planar: bool) -> Kernel:
    """For `rows` rows of x and `count` matrices."""
    make = _singles(format_name, shape, rows) if shape.width % 8 else _parts(format_name, shape, rows, planar)
    resident = round(65_536 / (72 if rows <= 2 else 128) / shape.threads)  # blocks, of what registers they need
    return Kernel(_kernel(make, shape, rows, count, planar, format_name), _PARAMETERS, shape.threads, resident)


def _kernel(multiply: Any, shape: Cut, rows: int, count: int, planar: bool, format_name: str) -> Callable[..., None]:
    """The kernel around `multiply`, which makes a lane's share of a team's sums."""
    lanes, outs, teams, width = shape.lanes, shape.outs, shape.teams, shape.width
    form = FORMATS[format_name]
    row_bytes, blocks_a_row = form.row_bytes(width), width // form.block_values
    warps = max(1, lanes // 32)
    made = outs * rows
    held = teams * warps * made
    sum_lanes, kept, between = lane_sums(min(lanes, 32), made)

    def dense_team(x, table, ends, out, num_outs, out_width, first, codebook):  # type: ignore[no-untyped-def]
        partial = cuda.shared.array(held, float32)
        thread = np.int32(cuda.threadIdx.x)
        team, lane = thread // lanes, thread % lanes
        start = (np.int64(cuda.blockIdx.x) * teams + team) * outs
        bases = cuda.local.array(outs, np.int64)
        blocks = cuda.local.array(outs, np.int64)
        firsts = cuda.local.array(outs, np.int64)
        for o in range(outs):
            n = min(start + o, num_outs - 1)
            base, begin, end = load_long(table), np.int64(0), np.int64(load_int(ends))
            for m in range(1, count):  # without a branch: all of the table is read at once
                other, edge, stop = load_long(table + m * 8), np.int64(load_int(ends + (m - 1) * 4)), np.int64(load_int(ends + m * 4))
                here = n >= edge
                base, begin, end = (other if here else base), (edge if here else begin), (stop if here else end)
            bases[o] = base if planar else base + (n - begin) * row_bytes
            blocks[o] = (end - begin) * blocks_a_row if planar else 0
            firsts[o] = (n - begin) * blocks_a_row if planar else 0
        sums = cuda.local.array(made, np.float32)
        for j in range(made):
            sums[j] = _ZERO
        multiply(sums, x, bases, blocks, firsts, lane, codebook)
        mine = sum_lanes(sums, lane)
        if lane % between == 0:
            for j in range(kept):
                partial[(team * warps + lane // 32) * made + mine + j] = sums[j]
        cuda.syncthreads()
        for i in range(thread, teams * made, teams * lanes):
            of_team = i // made
            o = (i - of_team * made) // rows
            total = partial[of_team * warps * made + i - of_team * made]
            for warp in range(1, warps):
                total = add(total, partial[(of_team * warps + warp) * made + i - of_team * made])
            n = (np.int64(cuda.blockIdx.x) * teams + of_team) * outs + o
            if n < num_outs:
                r = i - of_team * made - o * rows
                store_float(out + (r * out_width + first + n) * 4, total)

    return dense_team


def _parts(format_name: str, shape: Cut, rows: int, planar: bool) -> Any:
    """Device function: eight values a step."""
    use, form = decoder(format_name, planar, 16), FORMATS[format_name]
    load, values = use.load, use.values
    is_float = format_name in FLOATS
    shift = 0 if is_float else (form.block_values // 8).bit_length() - 1
    width, lanes, outs, parts = shape.width, shape.lanes, shape.outs, shape.width // 8
    whole, values_held = parts // lanes, 8 * outs
    rest = parts > whole * lanes

    @inline
    def step(sums, x, bases, blocks, firsts, i, codebook):  # type: ignore[no-untyped-def]
        part = i if is_float else i & ((1 << shift) - 1)
        weights = cuda.local.array(values_held, np.float32)
        for o in range(outs):
            v = values(load(bases[o], blocks[o], firsts[o] + (0 if is_float else i >> shift), part, codebook), part)
            _put(weights, 8 * o, v)
        for r in range(rows):
            at = x + (r * width + i * 8) * 4
            a, b = load_float4(at), load_float4(at + 16)
            for o in range(outs):
                sums[o * rows + r] = _eight(weights, 8 * o, a, b, sums[o * rows + r])

    @inline
    def multiply(sums, x, bases, blocks, firsts, lane, codebook):  # type: ignore[no-untyped-def]
        for s in range(whole):
            step(sums, x, bases, blocks, firsts, np.int64(lane + s * lanes), codebook)
        if rest and lane + whole * lanes < parts:
            step(sums, x, bases, blocks, firsts, np.int64(lane + whole * lanes), codebook)

    return multiply


@inline
def _put(weights, at, v):  # type: ignore[no-untyped-def]
    weights[at], weights[at + 1], weights[at + 2], weights[at + 3] = v[0], v[1], v[2], v[3]
    weights[at + 4], weights[at + 5], weights[at + 6], weights[at + 7] = v[4], v[5], v[6], v[7]


@inline
def _eight(w, at, a, b, total):  # type: ignore[no-untyped-def]
    low = fused(w[at + 3], a[3], fused(w[at + 2], a[2], fused(w[at + 1], a[1], fused(w[at], a[0], total))))
    return fused(w[at + 7], b[3], fused(w[at + 6], b[2], fused(w[at + 5], b[1], fused(w[at + 4], b[0], low))))


def _singles(format_name: str, shape: Cut, rows: int) -> Any:
    """Device function: a value a step, for widths that eight does not divide; only float formats have them."""
    widen, load = single_value(format_name), load32 if format_name == "F32" else load16
    size, width, lanes = FORMATS[format_name].block_bytes, shape.width, shape.lanes

    @inline
    def multiply(sums, x, bases, blocks, firsts, lane, codebook):  # type: ignore[no-untyped-def]
        for i in range(lane, width, lanes):
            weight = widen(load(bases[0] + i * size))
            for r in range(rows):
                sums[r] = fused(weight, load_float(x + (r * width + i) * 4), sums[r])

    return multiply
