"""The K formats, 256 values a block: see decode.py for the contract."""

# ruff: noqa: RUF005  numba adds tuples, it does not unpack them
# mypy: no-check-untyped-defs
from __future__ import annotations

from typing import Any

import numpy as np

from kernels_numba.device import inline
from kernels_numba.gpu.blocks import Fields
from kernels_numba.gpu.codes import nibble_word
from kernels_numba.ptx import bits, byte, half_to_float, load8, load16, shift_or, to_float

_ZERO = np.float32(0)


@inline
def _level(levels, eighth):  # type: ignore[no-untyped-def]
    """The 6-bit scale of an eighth of the block: the last four keep their two high bits in the first four's bytes."""
    if eighth < 4:
        return bits(load8(levels + eighth), 0, 63)
    return shift_or(bits(load8(levels + eighth + 4), 0, 15), bits(load8(levels + eighth - 4), 6, 3), 4)


@inline
def _least(levels, eighth):  # type: ignore[no-untyped-def]
    """The 6-bit minimum of an eighth of the block."""
    if eighth < 4:
        return bits(load8(levels + eighth + 4), 0, 63)
    return shift_or(bits(load8(levels + eighth + 4), 4, 15), bits(load8(levels + eighth), 6, 3), 4)


def _q4_k(fields: Fields) -> tuple[Any, Any, int]:
    codes, scale, least, levels = fields.at("qs"), fields.at("d"), fields.at("dmin"), fields.at("scales")
    pair = fields.words("qs", 2, 8)

    @inline
    def load(base, count, block, part, table):  # type: ignore[no-untyped-def]
        eighth, packed = part >> 2, levels(base, count, block)
        return pair(codes(base, count, block) + 32 * (eighth >> 1) + 8 * (part & 3)) + (
            load16(scale(base, count, block)), load16(least(base, count, block)), _level(packed, eighth), _least(packed, eighth),
        )  # fmt: skip

    @inline
    def codes_of(raw, part):  # type: ignore[no-untyped-def]
        upper = (part >> 2) & 1
        return (nibble_word(raw[0], upper), nibble_word(raw[1], upper),
                half_to_float(raw[2]) * to_float(raw[4]), half_to_float(raw[3]) * to_float(raw[5]))  # fmt: skip

    return load, codes_of, 0


def _q5_k(fields: Fields) -> tuple[Any, Any, int]:
    load_low, codes_low, _ = _q4_k(fields)
    high, pair = fields.at("qh"), fields.words("qh", 2, 8)

    @inline
    def load(base, count, block, part, table):  # type: ignore[no-untyped-def]
        return load_low(base, count, block, part, table) + pair(high(base, count, block) + 8 * (part & 3))

    @inline
    def codes_of(raw, part):  # type: ignore[no-untyped-def]
        low, top, each, minimum = codes_low(raw, part)
        eighth = part >> 2
        return (shift_or(low, bits(raw[6], eighth, 0x01010101), 4), shift_or(top, bits(raw[7], eighth, 0x01010101), 4), each, minimum)

    return load, codes_of, 0


def _q6_k(fields: Fields) -> tuple[Any, Any, int]:
    low, high, levels, scale = fields.at("ql"), fields.at("qh"), fields.at("scales"), fields.at("d")
    low_pair, high_pair = fields.words("ql", 2, 8), fields.words("qh", 2, 8)

    @inline
    def load(base, count, block, part, table):  # type: ignore[no-untyped-def]
        # a half block of 128 values is four runs of 32: run r has its low nibbles in 32-byte half r & 1
        half, run, eight = part >> 4, (part >> 2) & 3, part & 3
        return (
            low_pair(low(base, count, block) + 64 * half + 32 * (run & 1) + 8 * eight)
            + high_pair(high(base, count, block) + 32 * half + 8 * eight)
            + (load8(levels(base, count, block) + 8 * half + 2 * run + (eight >> 1)), load16(scale(base, count, block)))
        )

    @inline
    def codes_of(raw, part):  # type: ignore[no-untyped-def]
        run = (part >> 2) & 3
        first = shift_or(nibble_word(raw[0], run >> 1), bits(raw[2], 2 * run, 0x03030303), 4)
        second = shift_or(nibble_word(raw[1], run >> 1), bits(raw[3], 2 * run, 0x03030303), 4)
        return first, second, half_to_float(raw[5]) * to_float(byte(raw[4], 0)), _ZERO

    return load, codes_of, 32


MAKERS = {"Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k}
