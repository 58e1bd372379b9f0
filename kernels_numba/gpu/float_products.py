"""A lane's share of float32 products: weights of any format widened, times a few rows, summed in float32. Knows no matrix and no launch."""

# mypy: no-check-untyped-defs
from __future__ import annotations

import numpy as np

from kernels_numba.device import inline
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.decode import FLOATS, decoder, single_value
from kernels_numba.gpu.teams import Cut, Multiply, cut
from kernels_numba.ptx import fused, load16, load32, load_float, load_float4, multiply


def float_cut(width: int, num_outs: int) -> Cut:
    """A lane takes eight values a step; one where eight does not divide the width."""
    return Cut(32, 1) if width % 8 else cut(width // 8, num_outs)


def float_products(format_name: str, width: int, shape: Cut, rows: int, planar: bool, alignment: int) -> Multiply:
    """For rows of x at multiples of 16 bytes (of 4 where eight does not divide the width); `alignment`: of the matrices."""
    if width % 8:
        return _singles(format_name, width, shape, rows)
    return _parts(format_name, width, shape, rows, planar, alignment)


def _parts(format_name: str, width: int, shape: Cut, rows: int, planar: bool, alignment: int) -> Multiply:
    """Eight values a step."""
    use, form = decoder(format_name, planar, alignment), FORMATS[format_name]
    scaled = use.unscaled is not None  # the scale comes after the sum of eight: one product for all of them
    load, values = use.load, use.unscaled if scaled else use.values
    held, put, eight = (9, _put_nine, _eight_scaled) if scaled else (8, _put_eight, _eight)
    is_float = format_name in FLOATS
    shift = 0 if is_float else (form.block_values // 8).bit_length() - 1
    lanes, outs, parts = shape.lanes, shape.outs, width // 8
    whole = parts // lanes
    rest = parts > whole * lanes

    @inline
    def step(sums, weights, places, bases, blocks, firsts, i, codebook):  # type: ignore[no-untyped-def]
        part = i if is_float else i & ((1 << shift) - 1)
        for o in range(outs):
            v = values(load(bases[o], blocks[o], firsts[o] + (0 if is_float else i >> shift), part, codebook), part)
            put(weights, held * o, v)
        for r in range(rows):
            at = places[r] + i * 32
            a, b = load_float4(at), load_float4(at + 16)
            for o in range(outs):
                sums[o * rows + r] = eight(weights, held * o, a, b, sums[o * rows + r])

    @inline
    def multiply_rows(sums, floats, words, places, scales, bases, blocks, firsts, lane, codebook):  # type: ignore[no-untyped-def]
        for s in range(whole):
            step(sums, floats, places, bases, blocks, firsts, np.int64(lane + s * lanes), codebook)
        if rest and lane + whole * lanes < parts:
            step(sums, floats, places, bases, blocks, firsts, np.int64(lane + whole * lanes), codebook)

    return Multiply(multiply_rows, num_floats=held * outs)


@inline
def _put_eight(weights, at, v):  # type: ignore[no-untyped-def]
    weights[at], weights[at + 1], weights[at + 2], weights[at + 3] = v[0], v[1], v[2], v[3]
    weights[at + 4], weights[at + 5], weights[at + 6], weights[at + 7] = v[4], v[5], v[6], v[7]


@inline
def _eight(w, at, a, b, total):  # type: ignore[no-untyped-def]
    low = fused(w[at + 3], a[3], fused(w[at + 2], a[2], fused(w[at + 1], a[1], fused(w[at], a[0], total))))
    return fused(w[at + 7], b[3], fused(w[at + 6], b[2], fused(w[at + 5], b[1], fused(w[at + 4], b[0], low))))


@inline
def _put_nine(weights, at, v):  # type: ignore[no-untyped-def]
    _put_eight(weights, at, v)
    weights[at + 8] = v[8]


@inline
def _eight_scaled(w, at, a, b, total):  # type: ignore[no-untyped-def]
    low = fused(w[at + 3], a[3], fused(w[at + 2], a[2], fused(w[at + 1], a[1], multiply(w[at], a[0]))))
    whole = fused(w[at + 7], b[3], fused(w[at + 6], b[2], fused(w[at + 5], b[1], fused(w[at + 4], b[0], low))))
    return fused(w[at + 8], whole, total)


def _singles(format_name: str, width: int, shape: Cut, rows: int) -> Multiply:
    """A value a step, for widths that eight does not divide; only float formats have them."""
    widen, load = single_value(format_name), load32 if format_name == "F32" else load16
    size, lanes, outs = FORMATS[format_name].block_bytes, shape.lanes, shape.outs

    @inline
    def multiply_rows(sums, floats, words, places, scales, bases, blocks, firsts, lane, codebook):  # type: ignore[no-untyped-def]
        for i in range(lane, width, lanes):
            for o in range(outs):
                weight = widen(load(bases[o] + i * size))
                for r in range(rows):
                    sums[o * rows + r] = fused(weight, load_float(places[r] + i * 4), sums[o * rows + r])

    return Multiply(multiply_rows)
