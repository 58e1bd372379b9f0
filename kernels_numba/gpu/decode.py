"""How eight neighbouring values of each format are read from a block: `load`, then `quads` or `values`. Knows no tensor shape.

A *part* is eight values: part p of a block holds values 8 p to 8 p + 7.

    load(base, count, block, part, table) -> raw words    base, count: see blocks.py; table: the codebook's address or 0
    quads(raw, part) -> (word, word, scale, minimum)      eight int8 codes; value = scale * code - minimum
    values(raw, part) -> eight float32, bit for bit those of reference.dequantize
    unscaled(raw, part) -> the eight before their scale, and the scale; only where the minimum is always 0

A format's maker gives load, codes and a bias: codes as quads, but as unsigned bytes that the bias is to be taken from; or, with SIGNED
for a bias, int8 already. Float formats have no quads. All products are exact in float32, so the order of multiplications does not show.
"""

# ruff: noqa: RUF005  numba adds tuples, it does not unpack them
# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels_numba.device import inline
from kernels_numba.formats import FORMATS
from kernels_numba.gpu import decode_iq, decode_k
from kernels_numba.gpu.blocks import Fields, words
from kernels_numba.gpu.codes import SIGNED, nibble_word, spread_pairs, subtract_bytes
from kernels_numba.gpu.decode_iq import look_up
from kernels_numba.ptx import as_float, bits, half_to_float, load16, pick_bytes, shift_or, xor

Made = tuple[Any, Any, int]
Maker = Callable[[Fields], Made]
FLOATS = ("F32", "F16", "BF16")
_ZERO = np.float32(0)
_SIGNS = 0x80808080 - 2**32
_TWO_TO_23 = 0x4B000000  # float32 bits


@dataclass(frozen=True)
class Decoder:
    """Device functions of one format in one order; `has_minimum` where the minimum is not always 0."""

    load: Any
    values: Any
    quads: Any = None
    unscaled: Any = None
    has_minimum: bool = False


@functools.cache
def decoder(format_name: str, planar: bool, alignment: int) -> Decoder:
    """The device functions. `alignment`: of tensor bases in bytes, a power of two; planar is the same as plain for float formats."""
    if format_name in FLOATS:
        return _float_decoder(format_name, alignment)
    maker: Maker = {**_MAKERS, **decode_iq.MAKERS, **decode_k.MAKERS}[format_name]
    load, codes, bias = maker(Fields(format_name, planar, alignment))
    has_minimum = "dmin" in dict(FORMATS[format_name].fields)
    values = _values(codes, bias, has_minimum)
    unscaled = None if has_minimum else _unscaled(codes, bias)
    if bias in (0, SIGNED):
        return Decoder(load, values, codes, unscaled, has_minimum)

    @inline
    def quads(raw, part):  # type: ignore[no-untyped-def]
        low, high, scale, least = codes(raw, part)
        return subtract_bytes(low, bias), subtract_bytes(high, bias), scale, least

    return Decoder(load, values, quads, unscaled, has_minimum)


def _values(codes: Any, bias: int, has_minimum: bool) -> Any:
    """Device function (raw, part) -> eight float32, from a maker's codes. Signed codes are made unsigned first."""
    flip, taken = bias == SIGNED, np.float32(2**23 + bias)

    @inline
    def value(word, selector, scale):  # type: ignore[no-untyped-def]
        # a byte set as the low bits of 2**23, and that taken off: exact, and four times as fast as a conversion instruction
        return scale * (as_float(pick_bytes(word, _TWO_TO_23, selector)) - taken)

    @inline
    def values(raw, part):  # type: ignore[no-untyped-def]
        low, high, scale, least = codes(raw, part)
        if flip:
            low, high = xor(low, _SIGNS), xor(high, _SIGNS)
        if has_minimum:
            return (
                value(low, 0x7650, scale) - least, value(low, 0x7651, scale) - least,
                value(low, 0x7652, scale) - least, value(low, 0x7653, scale) - least,
                value(high, 0x7650, scale) - least, value(high, 0x7651, scale) - least,
                value(high, 0x7652, scale) - least, value(high, 0x7653, scale) - least,
            )  # fmt: skip
        return (
            value(low, 0x7650, scale), value(low, 0x7651, scale), value(low, 0x7652, scale), value(low, 0x7653, scale),
            value(high, 0x7650, scale), value(high, 0x7651, scale), value(high, 0x7652, scale), value(high, 0x7653, scale),
        )  # fmt: skip

    return values


def _unscaled(codes: Any, bias: int) -> Any:
    """Device function (raw, part) -> eight float32 and their scale."""
    flip, taken = bias == SIGNED, np.float32(2**23 + bias)

    @inline
    def value(word, selector):  # type: ignore[no-untyped-def]
        return as_float(pick_bytes(word, _TWO_TO_23, selector)) - taken

    @inline
    def unscaled(raw, part):  # type: ignore[no-untyped-def]
        low, high, scale, _ = codes(raw, part)
        if flip:
            low, high = xor(low, _SIGNS), xor(high, _SIGNS)
        return (
            value(low, 0x7650), value(low, 0x7651), value(low, 0x7652), value(low, 0x7653),
            value(high, 0x7650), value(high, 0x7651), value(high, 0x7652), value(high, 0x7653), scale,
        )  # fmt: skip

    return unscaled


def _float_decoder(format_name: str, alignment: int) -> Decoder:
    size = FORMATS[format_name].block_bytes
    words_of_part = words(2 * size, min(alignment, 16))

    @inline
    def load(base, count, block, part, table):  # type: ignore[no-untyped-def]
        return words_of_part(base + (block + 8 * part) * size)

    @inline
    def f32(raw, part):  # type: ignore[no-untyped-def]
        return (as_float(raw[0]), as_float(raw[1]), as_float(raw[2]), as_float(raw[3]),
                as_float(raw[4]), as_float(raw[5]), as_float(raw[6]), as_float(raw[7]))  # fmt: skip

    single = single_value(format_name)

    @inline
    def halves(raw, part):  # type: ignore[no-untyped-def]
        return (single(bits(raw[0], 0, 0xFFFF)), single(bits(raw[0], 16, 0xFFFF)), single(bits(raw[1], 0, 0xFFFF)),
                single(bits(raw[1], 16, 0xFFFF)), single(bits(raw[2], 0, 0xFFFF)), single(bits(raw[2], 16, 0xFFFF)),
                single(bits(raw[3], 0, 0xFFFF)), single(bits(raw[3], 16, 0xFFFF)))  # fmt: skip

    return Decoder(load, f32 if format_name == "F32" else halves)


def single_value(format_name: str) -> Any:
    """Device function: the stored bits of one value of a float format, as a word, to float32."""

    @inline
    def widened(word):  # type: ignore[no-untyped-def]
        return as_float(shift_or(0, word, 16))

    return {"F32": as_float, "F16": half_to_float, "BF16": widened}[format_name]


def _q8_0(fields: Fields) -> Made:
    codes, scale, pair = fields.at("qs"), fields.at("d"), fields.words("qs", 2, 8)

    @inline
    def load(base, count, block, part, table):  # type: ignore[no-untyped-def]
        return pair(codes(base, count, block) + 8 * part) + (load16(scale(base, count, block)),)

    @inline
    def codes_of(raw, part):  # type: ignore[no-untyped-def]
        return raw[0], raw[1], half_to_float(raw[2]), _ZERO

    return load, codes_of, SIGNED


def _nibbles(fields: Fields) -> Any:
    """The load of formats whose 16 bytes hold values 0 to 15 in low nibbles and 16 to 31 in high ones."""
    codes, scale, pair = fields.at("qs"), fields.at("d"), fields.words("qs", 2, 8)

    @inline
    def load(base, count, block, part, table):  # type: ignore[no-untyped-def]
        return pair(codes(base, count, block) + 8 * (part & 1)) + (load16(scale(base, count, block)),)

    return load


def _q4_0(fields: Fields) -> Made:
    @inline
    def codes_of(raw, part):  # type: ignore[no-untyped-def]
        return nibble_word(raw[0], part >> 1), nibble_word(raw[1], part >> 1), half_to_float(raw[2]), _ZERO

    return _nibbles(fields), codes_of, 8


def _iq4_nl(fields: Fields) -> Made:
    @inline
    def codes_of(raw, part):  # type: ignore[no-untyped-def]
        low, high = nibble_word(raw[0], part >> 1), nibble_word(raw[1], part >> 1)
        return look_up(low), look_up(high), half_to_float(raw[2]), _ZERO

    return _nibbles(fields), codes_of, SIGNED


def _q2_0(fields: Fields) -> Made:
    codes, scale = fields.at("qs"), fields.at("d")

    @inline
    def load(base, count, block, part, table):  # type: ignore[no-untyped-def]
        return load16(codes(base, count, block) + 2 * part), load16(scale(base, count, block))

    @inline
    def codes_of(raw, part):  # type: ignore[no-untyped-def]
        return spread_pairs(bits(raw[0], 0, 0xFF)), spread_pairs(bits(raw[0], 8, 0xFF)), half_to_float(raw[1]), _ZERO

    return load, codes_of, 1


_MAKERS = {"Q8_0": _q8_0, "Q4_0": _q4_0, "Q2_0": _q2_0, "IQ4_NL": _iq4_nl}
