"""A few float32 rows times matrices that lie anywhere in device memory, one under the other, on the GPU; float32 sums. Knows no model."""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels_numba.device import Kernel, address, inline
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.codebooks import codebook_address
from kernels_numba.gpu.decode import FLOATS, decoder, single_value
from kernels_numba.gpu.jobs import MAX_ROWS
from kernels_numba.gpu.teams import Cut, Multiply, Stored, cut, team_kernel
from kernels_numba.ptx import fused, load16, load32, load_float, load_float4


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

    @property
    def stored(self) -> Stored:
        form = FORMATS[self.format_name]
        return Stored(self.count, form.row_bytes(self.width), self.width // form.block_values, self.planar)

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
    shape = Cut(32, 1) if stack.width % 8 else cut(stack.width // 8, stack.num_outs)
    for begin in range(0, rows, MAX_ROWS):
        kernel = dense_kernel(stack.format_name, stack.width, shape, min(rows - begin, MAX_ROWS), stack.stored)
        places = source + begin * stack.width * 4, 0, *stack.addresses(), target + begin * out_width * 4
        kernel.launch(shape.blocks(stack.num_outs), stream, *places, stack.num_outs, out_width, first, codebook_address(stack.format_name))


@functools.cache
def dense_kernel(format_name: str, width: int, shape: Cut, rows: int, stored: Stored) -> Kernel:
    """For `rows` rows of x."""
    multiply = _singles(format_name, width, shape, rows) if width % 8 else _parts(format_name, width, shape, rows, stored.planar)
    return team_kernel(multiply, shape, rows, stored)


def _parts(format_name: str, width: int, shape: Cut, rows: int, planar: bool) -> Multiply:
    """Eight values a step."""
    use, form = decoder(format_name, planar, 16), FORMATS[format_name]
    load, values = use.load, use.values
    is_float = format_name in FLOATS
    shift = 0 if is_float else (form.block_values // 8).bit_length() - 1
    lanes, outs, parts = shape.lanes, shape.outs, width // 8
    whole = parts // lanes
    rest = parts > whole * lanes

    @inline
    def step(sums, weights, x, bases, blocks, firsts, i, codebook):  # type: ignore[no-untyped-def]
        part = i if is_float else i & ((1 << shift) - 1)
        for o in range(outs):
            v = values(load(bases[o], blocks[o], firsts[o] + (0 if is_float else i >> shift), part, codebook), part)
            _put(weights, 8 * o, v)
        for r in range(rows):
            at = x + (r * width + i * 8) * 4
            a, b = load_float4(at), load_float4(at + 16)
            for o in range(outs):
                sums[o * rows + r] = _eight(weights, 8 * o, a, b, sums[o * rows + r])

    @inline
    def multiply(sums, floats, words, x, scales, bases, blocks, firsts, lane, codebook):  # type: ignore[no-untyped-def]
        for s in range(whole):
            step(sums, floats, x, bases, blocks, firsts, np.int64(lane + s * lanes), codebook)
        if rest and lane + whole * lanes < parts:
            step(sums, floats, x, bases, blocks, firsts, np.int64(lane + whole * lanes), codebook)

    return Multiply(multiply, num_floats=8 * outs)


@inline
def _put(weights, at, v):  # type: ignore[no-untyped-def]
    weights[at], weights[at + 1], weights[at + 2], weights[at + 3] = v[0], v[1], v[2], v[3]
    weights[at + 4], weights[at + 5], weights[at + 6], weights[at + 7] = v[4], v[5], v[6], v[7]


@inline
def _eight(w, at, a, b, total):  # type: ignore[no-untyped-def]
    low = fused(w[at + 3], a[3], fused(w[at + 2], a[2], fused(w[at + 1], a[1], fused(w[at], a[0], total))))
    return fused(w[at + 7], b[3], fused(w[at + 6], b[2], fused(w[at + 5], b[1], fused(w[at + 4], b[0], low))))


def _singles(format_name: str, width: int, shape: Cut, rows: int) -> Multiply:
    """A value a step, for widths that eight does not divide; only float formats have them."""
    widen, load = single_value(format_name), load32 if format_name == "F32" else load16
    size, lanes = FORMATS[format_name].block_bytes, shape.lanes

    @inline
    def multiply(sums, floats, words, x, scales, bases, blocks, firsts, lane, codebook):  # type: ignore[no-untyped-def]
        for i in range(lane, width, lanes):
            weight = widen(load(bases[0] + i * size))
            for r in range(rows):
                sums[r] = fused(weight, load_float(x + (r * width + i) * 4), sums[r])

    return Multiply(multiply)
