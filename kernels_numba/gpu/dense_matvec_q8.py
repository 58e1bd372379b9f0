"""A few int8 rows times stacked matrices on the GPU, with dp4a: integer sums are exact, each is scaled in float32. Knows no model.

As dense_matvec.py, for rows from quantize_rows.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels_numba.device import Kernel, address, inline
from kernels_numba.endings import Ending
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.codebooks import codebook_address
from kernels_numba.gpu.codes import transposed
from kernels_numba.gpu.dense_matvec import Stack
from kernels_numba.gpu.endings import STORED, apart, finish, places
from kernels_numba.gpu.jobs import MAX_ROWS
from kernels_numba.gpu.teams import Cut, Finish, Multiply, Stored, cut, team_kernel
from kernels_numba.gpu.units import units
from kernels_numba.ptx import dp4a, fused, half_to_float, load16, load128, load_float, multiply, to_float

_ONES = 0x01010101
_ALIGNMENT = 16  # of matrices


def dense_matvec_q8(codes: Any, scales: Any, stack: Stack, to: Ending, stream: int = 0) -> None:
    """x W^T to its ending, with x = codes * scales: int8 [R, K], 16-byte aligned, float32 [R, K / 32].

    K is a multiple of 32; ValueError for float formats. Each sum errs by at most K / 16 + 8 roundings of its terms.
    """
    rows, width, end = int(codes.shape[0]), stack.width, finish(to)
    use = units(stack.format_name, stack.planar, _ALIGNMENT)
    if width % 32:
        raise ValueError(f"rows of {width} values: wanted a multiple of 32")
    target, source = places(to, rows, stack.num_outs), address("codes", codes, "int8", (rows, width))
    factors = address("scales", scales, "float32", (rows, width // 32))
    if source % 16:
        raise ValueError("codes must start at a multiple of 16 bytes")
    shape = apart(to, cut(width // use.values, stack.num_outs, 2 if use.values > 32 else 4))
    for begin in range(0, rows, MAX_ROWS):
        kernel = dense_q8_kernel(stack.format_name, width, shape, min(rows - begin, MAX_ROWS), stack.stored, end)
        out, beside, out_width, first = target.at(begin)
        given = source + begin * width, factors + begin * (width // 32) * 4, *stack.addresses(), out, beside
        kernel.launch(shape.blocks(stack.num_outs), stream, *given, stack.num_outs, out_width, first, codebook_address(stack.format_name))


@functools.cache
def dense_q8_kernel(format_name: str, width: int, shape: Cut, rows: int, stored: Stored, end: Finish = STORED) -> Kernel:
    """For `rows` rows of x; a lane takes one unit (see units.py) a step."""
    return team_kernel(_units(format_name, width, shape, rows, stored.planar), shape, rows, stored, end)


def _units(format_name: str, width: int, shape: Cut, rows: int, planar: bool) -> Multiply:
    use = units(format_name, planar, _ALIGNMENT)
    load, taken_apart, scale, least, head = use.load, use.words, use.scale, use.least, use.head
    has_head, has_least, bias, mixed, unit = use.has_head, use.has_least, use.bias, use.mixed, use.values
    block_units, groups, count = max(1, FORMATS[format_name].block_values // unit), width // 32, width // unit
    lanes, outs, whole = shape.lanes, shape.outs, count // shape.lanes
    rest, subs, group_words = count > whole * lanes, max(1, unit // 32), min(unit, 32) // 4
    bytes_a_sub, row_words = min(unit, 32), subs * group_words
    put, dot, activations = _put(group_words), _dot(group_words), _activations(group_words, mixed)
    ones = (_ONES,) * group_words

    @inline
    def step(sums, floats, weights, places, scales, bases, blocks, firsts, i, codebook):  # type: ignore[no-untyped-def]
        # floats: each output's scale, then each one's minimum
        for o in range(outs):
            place = firsts[o] * block_units + i
            raw = load(bases[o], blocks[o], place, codebook)
            floats[o] = half_to_float(load16(head(bases[o], blocks[o], place // block_units))) if has_head else scale(raw)
            floats[outs + o] = least(raw)
            for sub in range(subs):
                put(weights, o * row_words + sub * group_words, taken_apart(raw, sub))
        for sub in range(subs):
            for r in range(rows):
                a = activations(places[r] + i * unit + sub * bytes_a_sub)
                each = load_float(scales + (r * groups + (i * unit + sub * bytes_a_sub) // 32) * 4)
                for o in range(outs):
                    total = dot(weights, o * row_words + sub * group_words, a)
                    if bias:
                        total -= bias * dot(ones, 0, a)
                    sums[o * rows + r] = fused(multiply(floats[o], each), to_float(total), sums[o * rows + r])
                    if has_least:
                        sums[o * rows + r] = fused(multiply(-floats[outs + o], each), to_float(dot(ones, 0, a)), sums[o * rows + r])

    @inline
    def multiply_units(sums, floats, words, places, scales, bases, blocks, firsts, lane, codebook):  # type: ignore[no-untyped-def]
        for s in range(whole):
            step(sums, floats, words, places, scales, bases, blocks, firsts, np.int64(lane + s * lanes), codebook)
        if rest and lane + whole * lanes < count:
            step(sums, floats, words, places, scales, bases, blocks, firsts, np.int64(lane + whole * lanes), codebook)

    return Multiply(multiply_units, num_floats=2 * outs, num_words=outs * row_words, value_bytes=1)


def _put(num_words: int) -> Any:
    """Device function: 4 or 8 words into an array."""

    @inline
    def four(weights, at, w):  # type: ignore[no-untyped-def]
        weights[at], weights[at + 1], weights[at + 2], weights[at + 3] = w[0], w[1], w[2], w[3]

    @inline
    def eight(weights, at, w):  # type: ignore[no-untyped-def]
        weights[at], weights[at + 1], weights[at + 2], weights[at + 3] = w[0], w[1], w[2], w[3]
        weights[at + 4], weights[at + 5], weights[at + 6], weights[at + 7] = w[4], w[5], w[6], w[7]

    return four if num_words == 4 else eight


def _activations(num_words: int, mixed: bool) -> Any:
    """Device function: 16 or 32 codes at an address, transposed where the format's codes lie so."""

    @inline
    def four(at):  # type: ignore[no-untyped-def]
        return load128(at)

    @inline
    def eight(at):  # type: ignore[no-untyped-def]
        return load128(at) + load128(at + 16)

    @inline
    def eight_mixed(at):  # type: ignore[no-untyped-def]
        return transposed(load128(at)) + transposed(load128(at + 16))

    if num_words == 4:
        return four
    return eight_mixed if mixed else eight


def _dot(num_words: int) -> Any:
    """Device function (words, index of the first, activations): their integer dot product."""

    @inline
    def four(w, at, a):  # type: ignore[no-untyped-def]
        return dp4a(w[at + 3], a[3], dp4a(w[at + 2], a[2], dp4a(w[at + 1], a[1], dp4a(w[at], a[0], 0))))

    @inline
    def eight(w, at, a):  # type: ignore[no-untyped-def]
        low = dp4a(w[at + 3], a[3], dp4a(w[at + 2], a[2], dp4a(w[at + 1], a[1], dp4a(w[at], a[0], 0))))
        return dp4a(w[at + 7], a[7], dp4a(w[at + 6], a[6], dp4a(w[at + 5], a[5], dp4a(w[at + 4], a[4], low))))

    return four if num_words == 4 else eight
