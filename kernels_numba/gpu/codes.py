"""Small codes to bytes: device functions on words that hold four codes, one a byte. Knows no format."""

# mypy: no-check-untyped-defs
from __future__ import annotations

from kernels_numba.device import inline
from kernels_numba.ptx import add_words, bits, multiply_words, pick_bytes, shift_or, xor

SIGNED = 128  # the bias of codes that are int8 already


@inline
def nibble_word(word, high):  # type: ignore[no-untyped-def]
    """Four low nibbles (high 0) or four high ones (high 1)."""
    return bits(word, 4 * high, 0x0F0F0F0F)


@inline
def spread_pairs(codes):  # type: ignore[no-untyped-def]
    """Four 2-bit codes in a byte, low bits first, to four bytes."""
    apart = bits(shift_or(codes, codes, 12), 0, 0x000F000F)
    return bits(shift_or(apart, apart, 6), 0, 0x03030303)


@inline
def spread_bits(flags):  # type: ignore[no-untyped-def]
    """The four low bits to four bytes of 0 or 1."""
    return bits(multiply_words(bits(flags, 0, 15), 0x00204081), 0, 0x01010101)


@inline
def subtract_bytes(word, amount):  # type: ignore[no-untyped-def]
    """Each byte (0 to 127) less `amount` (0 to 128), as int8: the high bit lends to its own byte only."""
    return xor(add_words(xor(word, 0x80808080 - 2**32), -amount * 0x01010101), 0x80808080 - 2**32)


@inline
def negate_bytes(word, flags):  # type: ignore[no-untyped-def]
    """Bytes 1 to 127, negated where the flag (bit i for byte i) is set."""
    ones = spread_bits(flags)
    return add_words(xor(word, multiply_words(ones, 255)), ones)


@inline
def pick_sixteenths(word, table0, table1, table2, table3):  # type: ignore[no-untyped-def]
    """Four bytes of 0 to 15 to entries of a table of 16 bytes in four words."""
    pairs = bits(shift_or(word, bits(word, 4, 0x00F000F0), 0), 0, 0x00FF00FF)
    nibbles = bits(shift_or(pairs, bits(pairs, 8, 0xFF00), 0), 0, 0xFFFF)
    index = bits(nibbles, 0, 0x7777)
    low, high = pick_bytes(table0, table1, index), pick_bytes(table2, table3, index)
    return pick_bytes(low, high, shift_or(0x3210, bits(nibbles, 1, 0x4444), 0))


@inline
def transposed(w):  # type: ignore[no-untyped-def]
    """The 4 x 4 bytes of four words, transposed."""
    a, b = pick_bytes(w[0], w[1], 0x5140), pick_bytes(w[2], w[3], 0x5140)
    c, d = pick_bytes(w[0], w[1], 0x7362), pick_bytes(w[2], w[3], 0x7362)
    return pick_bytes(a, b, 0x5410), pick_bytes(a, b, 0x7632), pick_bytes(c, d, 0x5410), pick_bytes(c, d, 0x7632)
