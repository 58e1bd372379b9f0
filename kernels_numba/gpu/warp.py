"""What the 32 lanes of a warp do together: sums and largest values, in one fixed order. Knows no op."""

# mypy: no-check-untyped-defs
from __future__ import annotations

from typing import Any

from kernels_numba.device import inline
from kernels_numba.ptx import add, as_float, as_word, shuffle_xor


def lane_sum(lanes: int) -> Any:
    """Device function: the sum of a float32 over each group of `lanes` neighbouring lanes, the same bits in each of them."""
    if lanes == 1:
        return _same
    half, inner = lanes // 2, lane_sum(lanes // 2)

    @inline
    def total(value):  # type: ignore[no-untyped-def]
        return inner(add(value, as_float(shuffle_xor(as_word(value), half))))

    return total


@inline
def _same(value):  # type: ignore[no-untyped-def]
    return value


@inline
def quarter_sum(value):  # type: ignore[no-untyped-def]
    """The sum over the four lanes of a warp that are eight apart, the same bits in each."""
    value = add(value, as_float(shuffle_xor(as_word(value), 8)))
    return add(value, as_float(shuffle_xor(as_word(value), 16)))


@inline
def warp_highest(value):  # type: ignore[no-untyped-def]
    """The highest of 32 float32 values; a NaN may or may not be found."""
    value = max(value, as_float(shuffle_xor(as_word(value), 16)))
    value = max(value, as_float(shuffle_xor(as_word(value), 8)))
    value = max(value, as_float(shuffle_xor(as_word(value), 4)))
    value = max(value, as_float(shuffle_xor(as_word(value), 2)))
    return max(value, as_float(shuffle_xor(as_word(value), 1)))


@inline
def warp_largest(word):  # type: ignore[no-untyped-def]
    """The largest of 32 non-negative words."""
    word = max(word, shuffle_xor(word, 16))
    word = max(word, shuffle_xor(word, 8))
    word = max(word, shuffle_xor(word, 4))
    word = max(word, shuffle_xor(word, 2))
    return max(word, shuffle_xor(word, 1))
