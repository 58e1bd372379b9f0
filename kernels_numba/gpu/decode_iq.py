"""The IQ formats with codebooks or a table of 16 values: see decode.py for the contract."""

# ruff: noqa: RUF005  numba adds tuples, it does not unpack them
# mypy: no-check-untyped-defs
from __future__ import annotations

from typing import Any

import numpy as np

from kernels_numba.device import inline
from kernels_numba.gpu.blocks import Fields
from kernels_numba.gpu.codes import SIGNED, negate_bytes, nibble_word, pick_sixteenths
from kernels_numba.grids import IQ4_VALUES, grid
from kernels_numba.ptx import bits, count_bits, gather32, gather64, half_to_float, load8, load16, shift_or, to_float

_ZERO, _HALF, _QUARTER = np.float32(0), np.float32(0.5), np.float32(0.25)
_IQ4 = [int(word) for word in np.array(IQ4_VALUES, np.int8).view(np.int32)]
_IQ4_0, _IQ4_1, _IQ4_2, _IQ4_3 = _IQ4


def codebook(format_name: str) -> np.ndarray:
    """What `table` points to: the points' bytes, [512, 8] for IQ2_XS, [1024, 8] for IQ2_S, [n, 4] for the IQ3 formats."""
    return grid(format_name).astype(np.uint8)


CODEBOOKS = ("IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")


@inline
def look_up(word):  # type: ignore[no-untyped-def]
    """Four nibbles, one a byte, to their int8 values."""
    return pick_sixteenths(word, _IQ4_0, _IQ4_1, _IQ4_2, _IQ4_3)


@inline
def with_parity(seven):  # type: ignore[no-untyped-def]
    """Seven sign bits to eight: the last makes the number of minus signs even."""
    return shift_or(seven, count_bits(seven) & 1, 7)


def _iq4_xs(fields: Fields) -> tuple[Any, Any, int]:
    codes, scale, high, low = fields.at("qs"), fields.at("d"), fields.at("scales_h"), fields.at("scales_l")
    pair = fields.words("qs", 2, 8)

    @inline
    def load(base, count, block, part, table):  # type: ignore[no-untyped-def]
        eighth = part >> 2
        return pair(codes(base, count, block) + 16 * eighth + 8 * (part & 1)) + (
            load16(scale(base, count, block)), load16(high(base, count, block)), load8(low(base, count, block) + (eighth >> 1)),
        )  # fmt: skip

    @inline
    def codes_of(raw, part):  # type: ignore[no-untyped-def]
        eighth, upper = part >> 2, (part >> 1) & 1
        level = shift_or(bits(raw[4], 4 * (eighth & 1), 15), bits(raw[3], 2 * eighth, 3), 4) - 32
        each = half_to_float(raw[2]) * to_float(level)
        return look_up(nibble_word(raw[0], upper)), look_up(nibble_word(raw[1], upper)), each, _ZERO

    return load, codes_of, SIGNED


@inline
def _two_bit_scale(head, packed, part):  # type: ignore[no-untyped-def]
    return (half_to_float(head) * (_HALF + to_float(bits(packed, 4 * ((part >> 1) & 1), 15)))) * _QUARTER


def _iq2_xs(fields: Fields) -> tuple[Any, Any, int]:
    codes, scale, levels = fields.at("qs"), fields.at("d"), fields.at("scales")

    @inline
    def load(base, count, block, part, table):  # type: ignore[no-untyped-def]
        code = load16(codes(base, count, block) + 2 * part)
        head, packed = load16(scale(base, count, block)), load8(levels(base, count, block) + (part >> 2))
        return gather64(table + 8 * (code & 511)) + (with_parity(bits(code, 9, 127)), head, packed)

    @inline
    def codes_of(raw, part):  # type: ignore[no-untyped-def]
        each = _two_bit_scale(raw[3], raw[4], part)
        return negate_bytes(raw[0], raw[2]), negate_bytes(raw[1], bits(raw[2], 4, 15)), each, _ZERO

    return load, codes_of, SIGNED


def _iq2_s(fields: Fields) -> tuple[Any, Any, int]:
    codes, scale, levels = fields.at("qs"), fields.at("d"), fields.at("scales")
    signs, high = fields.at("signs"), fields.at("qh")

    @inline
    def load(base, count, block, part, table):  # type: ignore[no-untyped-def]
        top = bits(load8(high(base, count, block) + (part >> 2)), 2 * (part & 3), 3)
        point = shift_or(load8(codes(base, count, block) + part), top, 8)
        head, packed = load16(scale(base, count, block)), load8(levels(base, count, block) + (part >> 2))
        return gather64(table + 8 * point) + (load8(signs(base, count, block) + part), head, packed)

    @inline
    def codes_of(raw, part):  # type: ignore[no-untyped-def]
        each = _two_bit_scale(raw[3], raw[4], part)
        return negate_bytes(raw[0], raw[2]), negate_bytes(raw[1], bits(raw[2], 4, 15)), each, _ZERO

    return load, codes_of, SIGNED


def _iq3_xxs(fields: Fields) -> tuple[Any, Any, int]:
    codes, scale, signs = fields.at("qs"), fields.at("d"), fields.at("signs")
    word_of = fields.words("signs", 1, 4)

    @inline
    def load(base, count, block, part, table):  # type: ignore[no-untyped-def]
        points = load16(codes(base, count, block) + 2 * part)
        word = word_of(signs(base, count, block) + 4 * (part >> 2))[0]
        return (gather32(table + 4 * (points & 255)), gather32(table + 4 * bits(points, 8, 255)),
                word, load16(scale(base, count, block)))  # fmt: skip

    @inline
    def codes_of(raw, part):  # type: ignore[no-untyped-def]
        flags = with_parity(bits(raw[2], 7 * (part & 3), 127))
        each = (half_to_float(raw[3]) * (_HALF + to_float(bits(raw[2], 28, 15)))) * _HALF
        return negate_bytes(raw[0], flags), negate_bytes(raw[1], bits(flags, 4, 15)), each, _ZERO

    return load, codes_of, SIGNED


def _iq3_s(fields: Fields) -> tuple[Any, Any, int]:
    codes, scale, high = fields.at("qs"), fields.at("d"), fields.at("qh")
    signs, levels = fields.at("signs"), fields.at("scales")

    @inline
    def load(base, count, block, part, table):  # type: ignore[no-untyped-def]
        points = load16(codes(base, count, block) + 2 * part)
        top = bits(load8(high(base, count, block) + (part >> 2)), 2 * (part & 3), 3)
        first, second = shift_or(points & 255, top & 1, 8), shift_or(bits(points, 8, 255), bits(top, 1, 1), 8)
        return (gather32(table + 4 * first), gather32(table + 4 * second), load8(signs(base, count, block) + part),
                load16(scale(base, count, block)), load8(levels(base, count, block) + (part >> 3)))  # fmt: skip

    @inline
    def codes_of(raw, part):  # type: ignore[no-untyped-def]
        each = half_to_float(raw[3]) * to_float(1 + 2 * bits(raw[4], 4 * ((part >> 2) & 1), 15))
        return negate_bytes(raw[0], raw[2]), negate_bytes(raw[1], bits(raw[2], 4, 15)), each, _ZERO

    return load, codes_of, SIGNED


MAKERS = {"IQ4_XS": _iq4_xs, "IQ2_XS": _iq2_xs, "IQ2_S": _iq2_s, "IQ3_XXS": _iq3_xxs, "IQ3_S": _iq3_s}
