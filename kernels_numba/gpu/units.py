"""How the 8-bit matvec reads each format: int8 words of one *unit* of weights that share a scale. Knows no rows.

A unit is 16 values, or as many as one 16-byte load of a planar tensor holds:

    load(base, count, unit, codebook) -> raw;  words(raw, sub) -> 8 words (4 where a unit is 16 values) of group `sub` of 32
    scale(raw), least(raw) -> float32;  value = scale * (code - bias) - least
    head(base, count, block) -> address of the block's float16 scale, where that is the unit's scale (has_head)
    mixed: activations of each 16 values are wanted transposed, 4 x 4 bytes, because the codes lie so
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels_numba.device import inline
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.blocks import Fields
from kernels_numba.gpu.codes import nibble_word
from kernels_numba.gpu.decode import decoder
from kernels_numba.ptx import bits

_ZERO = np.float32(0)


@dataclass(frozen=True)
class Units:
    """Device functions of one format in one order."""

    values: int
    load: Any
    words: Any
    scale: Any
    least: Any
    head: Any
    has_head: bool = True
    has_least: bool = False
    bias: int = 0
    mixed: bool = False


@inline
def _none(raw):  # type: ignore[no-untyped-def]
    return _ZERO


@inline
def _no_head(base, count, block):  # type: ignore[no-untyped-def]
    return base


@functools.cache
def units(format_name: str, planar: bool, alignment: int) -> Units:
    """The device functions; ValueError for float formats, whose products are not of integers."""
    makers = {"Q2_0": _q2_0, "Q4_0": _q4_0, "Q8_0": _q8_0}
    if format_name in makers:
        return makers[format_name](Fields(format_name, planar, alignment))
    return _sixteens(format_name, planar, alignment)


def _q2_0(fields: Fields) -> Units:
    codes, four = fields.at("qs"), fields.words("qs", 4)

    @inline
    def load(base, count, unit, codebook):  # type: ignore[no-untyped-def]
        return four(codes(base, count, unit))

    @inline
    def words(raw, sub):  # type: ignore[no-untyped-def]
        a = raw[0] if sub == 0 else raw[2]
        b = raw[1] if sub == 0 else raw[3]
        return (bits(a, 0, 0x03030303), bits(a, 2, 0x03030303), bits(a, 4, 0x03030303), bits(a, 6, 0x03030303),
                bits(b, 0, 0x03030303), bits(b, 2, 0x03030303), bits(b, 4, 0x03030303), bits(b, 6, 0x03030303))  # fmt: skip

    return Units(64, load, words, _none, _none, fields.at("d"), bias=1, mixed=True)


def _q4_0(fields: Fields) -> Units:
    codes, four = fields.at("qs"), fields.words("qs", 4)

    @inline
    def load(base, count, unit, codebook):  # type: ignore[no-untyped-def]
        return four(codes(base, count, unit))

    @inline
    def words(raw, sub):  # type: ignore[no-untyped-def]
        return (nibble_word(raw[0], 0), nibble_word(raw[1], 0), nibble_word(raw[2], 0), nibble_word(raw[3], 0),
                nibble_word(raw[0], 1), nibble_word(raw[1], 1), nibble_word(raw[2], 1), nibble_word(raw[3], 1))  # fmt: skip

    return Units(32, load, words, _none, _none, fields.at("d"), bias=8)


def _q8_0(fields: Fields) -> Units:
    codes, four = fields.at("qs"), fields.words("qs", 4)

    @inline
    def load(base, count, unit, codebook):  # type: ignore[no-untyped-def]
        return four(codes(base, count, unit >> 1) + 16 * (unit & 1))

    @inline
    def words(raw, sub):  # type: ignore[no-untyped-def]
        return raw

    return Units(16, load, words, _none, _none, fields.at("d"))


def _sixteens(format_name: str, planar: bool, alignment: int) -> Units:
    """Any format: two parts of eight, whose scales are one."""
    use = decoder(format_name, planar, alignment)
    if use.quads is None:
        raise ValueError(f"{format_name} has no 8-bit products: use the float32 matvec")
    load_part, quads, shift = use.load, use.quads, (FORMATS[format_name].block_values // 16).bit_length() - 1

    @inline
    def load(base, count, unit, codebook):  # type: ignore[no-untyped-def]
        block, part = unit >> shift, 2 * (unit & ((1 << shift) - 1))
        first = quads(load_part(base, count, block, part, codebook), part)
        second = quads(load_part(base, count, block, part + 1, codebook), part + 1)
        return first[0], first[1], second[0], second[1], first[2], first[3]

    @inline
    def words(raw, sub):  # type: ignore[no-untyped-def]
        return raw[0], raw[1], raw[2], raw[3]

    @inline
    def scale(raw):  # type: ignore[no-untyped-def]
        return raw[4]

    @inline
    def least(raw):  # type: ignore[no-untyped-def]
        return raw[5]

    return Units(16, load, words, scale, least, _no_head, has_head=False, has_least=use.has_minimum)
