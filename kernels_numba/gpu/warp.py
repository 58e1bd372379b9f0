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


def lane_sums(lanes: int, count: int) -> tuple[Any, int, int]:
    """`count` sums at once, each with the bits of lane_sum: (device function, sums kept a lane, lanes from one that keeps to the next).

    The function (sums, lane) changes the array `sums` so that it starts with the kept ones, and gives the index of the first of them.
    Lanes halve between them what is left to sum, so that this takes few shuffles, and the shuffles of one step do not wait for each other.
    """
    if lanes == 1:
        return _nothing, count, 1
    mask, half = lanes // 2, count // 2
    if count % 2:
        inner, kept, between = lane_sums(mask, count)

        @inline
        def all_of_them(sums, lane):  # type: ignore[no-untyped-def]
            for j in range(count):
                sums[j] = add(sums[j], as_float(shuffle_xor(as_word(sums[j]), mask)))
            return inner(sums, lane)

        return all_of_them, kept, max(between, lanes)
    inner, kept, between = lane_sums(mask, half)

    @inline
    def halved(sums, lane):  # type: ignore[no-untyped-def]
        upper = (lane & mask) != 0
        for j in range(half):
            low, high = sums[j], sums[j + half]  # by themselves: a choice between places would keep the array in memory
            sums[j] = add(high if upper else low, as_float(shuffle_xor(as_word(low if upper else high), mask)))
        first = inner(sums, lane)
        return first + half if upper else first

    return halved, kept, between


@inline
def _nothing(sums, lane):  # type: ignore[no-untyped-def]
    return 0


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
