"""Cells of 8- and 4-bit codes with float16 scales: values out of a cell, and a row that one warp holds in shared memory into it.

The truth, to the bit: reference_kv.py. Device functions; no op. Rows have a multiple of eight values.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

from typing import Any

import numpy as np

from kernels_numba.device import inline
from kernels_numba.gpu.warp import warp_largest
from kernels_numba.kv_formats import KV_FORMATS, KvFormat
from kernels_numba.ptx import (
    add,
    as_float,
    as_word,
    ballot,
    bits,
    divide,
    half_to_float,
    load8,
    load16,
    load32,
    load64,
    multiply,
    nearest,
    pack_f16,
    pick_bytes,
    shift_or,
    shuffle_xor,
    store8,
    store16,
    xor,
)  # fmt: skip

_ZERO, _LARGEST, _EIGHTH = np.float32(0), np.float32(127), np.float32(-0.125)
_MOST = np.float32(65504)  # of float16
_MAGIC = 0x4B000000  # the float32 2**23: a byte in its lowest place adds itself, without a conversion, which takes four times as long
_SIGNS = 0x80808080 - 2**32
_OF_8, _OF_4 = np.float32(-(2**23 + 128)), np.float32(-(2**23 + 8))


def eight_of(form: KvFormat, dim: int) -> Any:
    """Device function (cell's address, first): eight float32."""
    first_scale, group = form.code_bytes(dim), form.group
    words = _two_words(form.cell_bytes(dim)) if form.bits == 8 else _four_bytes(form.cell_bytes(dim))

    @inline
    def eight_of_8(cell, first):  # type: ignore[no-untyped-def]
        w = words(cell + first)
        scale = half_to_float(load16(cell + first_scale + first // group * 2))
        a, b = xor(w[0], _SIGNS), xor(w[1], _SIGNS)
        return (_value(a, 0x7440, _OF_8, scale), _value(a, 0x7441, _OF_8, scale), _value(a, 0x7442, _OF_8, scale),
                _value(a, 0x7443, _OF_8, scale), _value(b, 0x7440, _OF_8, scale), _value(b, 0x7441, _OF_8, scale),
                _value(b, 0x7442, _OF_8, scale), _value(b, 0x7443, _OF_8, scale))  # fmt: skip

    @inline
    def eight_of_4(cell, first):  # type: ignore[no-untyped-def]
        w = words(cell + first // 2)
        scale = half_to_float(load16(cell + first_scale + first // group * 2))
        a, b = bits(w, 0, 0x0F0F0F0F), bits(w, 4, 0x0F0F0F0F)
        return (_value(a, 0x7440, _OF_4, scale), _value(b, 0x7440, _OF_4, scale), _value(a, 0x7441, _OF_4, scale),
                _value(b, 0x7441, _OF_4, scale), _value(a, 0x7442, _OF_4, scale), _value(b, 0x7442, _OF_4, scale),
                _value(a, 0x7443, _OF_4, scale), _value(b, 0x7443, _OF_4, scale))  # fmt: skip

    return eight_of_8 if form.bits == 8 else eight_of_4


def pair_of(form: KvFormat, dim: int) -> Any:
    """Device function (cell's address, first): two float32."""
    first_scale, group = form.code_bytes(dim), form.group

    @inline
    def pair_of_8(cell, first):  # type: ignore[no-untyped-def]
        scale = half_to_float(load16(cell + first_scale + first // group * 2))
        w = xor(load16(cell + first), _SIGNS)
        return _value(w, 0x7440, _OF_8, scale), _value(w, 0x7441, _OF_8, scale)

    @inline
    def pair_of_4(cell, first):  # type: ignore[no-untyped-def]
        scale = half_to_float(load16(cell + first_scale + first // group * 2))
        w = load8(cell + first // 2)
        low, high = as_float(shift_or(_MAGIC, bits(w, 0, 15), 0)), as_float(shift_or(_MAGIC, bits(w, 4, 15), 0))
        return multiply(add(low, _OF_4), scale), multiply(add(high, _OF_4), scale)

    return pair_of_8 if form.bits == 8 else pair_of_4


@inline
def _value(word, selector, offset, scale):  # type: ignore[no-untyped-def]
    """The byte that `selector` puts under the exponent of 2**23, less `offset`, times the scale."""
    return multiply(add(as_float(pick_bytes(word, _MAGIC, selector)), offset), scale)


def _two_words(cell_bytes: int) -> Any:
    """Device function: eight bytes, in the widest loads that every cell's place allows."""
    if cell_bytes % 8 == 0:
        return load64
    four = _four_bytes(cell_bytes)

    @inline
    def two(at):  # type: ignore[no-untyped-def]
        return four(at), four(at + 4)

    return two


def _four_bytes(cell_bytes: int) -> Any:
    if cell_bytes % 4 == 0:
        return load32

    @inline
    def four(at):  # type: ignore[no-untyped-def]
        return shift_or(load16(at), load16(at + 2), 16)

    return four


def rotator(kv_format: str, dim: int) -> Any:
    """Device function (shared, at, lane): mix a row of shared memory in place as the format does. A warp does it together.

    A lane reads and writes values lane, lane + 32, .. of the row, and no others: barriers are the caller's.
    """
    size = KV_FORMATS[kv_format].rotation(dim)
    if size == 1:
        return _stay
    stages, count, scale = _stages(size // 2, dim), -(-dim // 32), np.float32(size**-0.5)

    @inline
    def rotate(shared, at, lane):  # type: ignore[no-untyped-def]
        stages(shared, at, lane)
        for i in range(count):
            if lane + 32 * i < dim:
                shared[at + lane + 32 * i] = multiply(shared[at + lane + 32 * i], scale)

    return rotate


@inline
def _stay(shared, at, lane):  # type: ignore[no-untyped-def]
    pass


def _stages(step: int, dim: int) -> Any:
    """Sums and differences of values 1, 2, .. `step` apart."""
    this = _across(step, dim) if step < 32 else _within(step // 32, dim)
    if step == 1:
        return this
    before = _stages(step // 2, dim)

    @inline
    def stages(shared, at, lane):  # type: ignore[no-untyped-def]
        before(shared, at, lane)
        this(shared, at, lane)

    return stages


def _across(step: int, dim: int) -> Any:
    count = -(-dim // 32)

    @inline
    def across(shared, at, lane):  # type: ignore[no-untyped-def]
        for i in range(count):
            inside, value = lane + 32 * i < dim, _ZERO
            if inside:
                value = shared[at + lane + 32 * i]
            other = as_float(shuffle_xor(as_word(value), step))
            if inside:
                shared[at + lane + 32 * i] = add(other, -value if lane & step else value)

    return across


def _within(half: int, dim: int) -> Any:
    pairs = dim // 64

    @inline
    def within(shared, at, lane):  # type: ignore[no-untyped-def]
        for p in range(pairs):
            i = at + lane + 32 * (p // half * (2 * half) + p % half)
            low, high = shared[i], shared[i + 32 * half]
            shared[i], shared[i + 32 * half] = add(low, high), add(low, -high)

    return within


def store_of(form: KvFormat, dim: int) -> Any:
    """Device function (cell's address, shared, at, lane): round a row of shared memory into the cell, rotated where the format rotates."""
    first_scale, groups, rotate = form.code_bytes(dim), form.groups(dim), rotator(form.name, dim)

    @inline
    def store_8(cell, shared, at, lane):  # type: ignore[no-untyped-def]
        for g in range(groups):
            i = g * 64 + lane * 2
            low, high = _ZERO, _ZERO
            if i < dim:
                low, high = shared[at + i], shared[at + i + 1]
            word = pack_f16(divide(as_float(warp_largest(max(_size(low), _size(high)))), _LARGEST), _ZERO)
            scale = half_to_float(word)
            if i < dim:
                store16(cell + i, shift_or(bits(_units(low, scale, -127, 127), 0, 255), bits(_units(high, scale, -127, 127), 0, 255), 8))
            if lane == 0:
                store16(cell + first_scale + g * 2, word)

    @inline
    def store_4(cell, shared, at, lane):  # type: ignore[no-untyped-def]
        rotate(shared, at, lane)
        for g in range(groups):
            value = _ZERO
            if g * 32 + lane < dim:
                value = shared[at + g * 32 + lane]
            largest = as_float(warp_largest(_size(value)))
            if ballot(1 if value == -largest else 0) != 0:
                largest = -largest
            word = pack_f16(multiply(largest, _EIGHTH), _ZERO)
            code = _units(value, half_to_float(word), -8, 7) + 8
            other = shuffle_xor(code, 1)
            if lane & 1 == 0:
                store8(cell + (g * 32 + lane) // 2, shift_or(code, other, 4))
            if lane == 0:
                store16(cell + first_scale + g * 2, word)

    return store_8 if form.bits == 8 else store_4


@inline
def _size(value):  # type: ignore[no-untyped-def]
    """A magnitude as a word: a NaN's is the largest of all."""
    return bits(as_word(value), 0, 0x7FFFFFFF)


@inline
def _units(value, scale, low, high):  # type: ignore[no-untyped-def]
    """A value in units of a stored scale, to the nearest whole one of those that have a code."""
    code = 0
    if scale != _ZERO and abs(scale) <= _MOST:
        code = min(max(nearest(divide(value, scale)), low), high)
    return code
