"""What one warp does with a head that it holds: its root-mean-square norm, and its rotation to a place. Device functions; no op.

A lane holds values lane, lane + 32, ..; the rotation needs others', so a head passes through shared memory, with barriers that the
kernel sets between.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from kernels_numba.device import inline
from kernels_numba.gpu.warp import lane_sum
from kernels_numba.ptx import add, divide, fused, load_float, multiply

_ZERO, _ONE = np.float32(0), np.float32(1)
_warp_sum = lane_sum(32)


def lane_values(dim: int) -> int:
    """Values of a head that a lane holds."""
    return -(-dim // 32)


@functools.cache
def head_loader(dim: int) -> Any:
    """Device function (source, values, lane): a lane's values of a head from an address on, zeros past its end."""
    own = lane_values(dim)

    @inline
    def load(source, values, lane):  # type: ignore[no-untyped-def]
        for i in range(own):
            values[i] = _ZERO
            if lane + 32 * i < dim:
                values[i] = load_float(source + (lane + 32 * i) * 4)

    return load


@functools.cache
def head_norm(dim: int) -> Any:
    """Device function (values, weight, eps, shared, lane): values / sqrt(mean of the head's squares + eps) * weight, into shared."""
    own, num_values = lane_values(dim), np.float32(dim)

    @inline
    def norm(values, weight, eps, shared, lane):  # type: ignore[no-untyped-def]
        square = _ZERO
        for i in range(own):
            square = fused(values[i], values[i], square)
        scale = divide(_ONE, np.float32(math.sqrt(add(divide(_warp_sum(square), num_values), eps))))
        for i in range(own):
            if lane + 32 * i < dim:
                shared[lane + 32 * i] = multiply(multiply(values[i], scale), load_float(weight + (lane + 32 * i) * 4))

    return norm


@functools.cache
def head_turn(half: int) -> Any:
    """Device function (shared, frequencies, place, lane): turn the pairs (i, i + half) of a head by place * frequencies[i].

    The angle is a float32 product, as the model has it; its cosine and sine are exact to the last bit or the one before.
    """

    @inline
    def turn(shared, frequencies, place, lane):  # type: ignore[no-untyped-def]
        for i in range(lane, half, 32):
            cos, sin = _cos_sin(multiply(np.float32(place), load_float(frequencies + i * 4)))
            low, high = shared[i], shared[i + half]
            shared[i] = add(multiply(low, cos), -multiply(high, sin))
            shared[i + half] = add(multiply(high, cos), multiply(low, sin))

    return turn


@inline
def _cos_sin(angle):  # type: ignore[no-untyped-def]
    """In float64: what is left of an angle of 2**18 after whole quarter turns is off by 1e-10, and series to the 12th power suffice.

    The library's float32 functions would keep a table in local memory for angles past 105,615.
    """
    wide = np.float64(angle)
    quarters = np.int64(math.floor(wide * (2 / math.pi) + 0.5))
    rest = wide - quarters * (math.pi / 2)
    z = rest * rest
    sin = rest * (1 - z * (1 / 6) * (1 - z * (1 / 20) * (1 - z * (1 / 42) * (1 - z * (1 / 72) * (1 - z * (1 / 110))))))
    cos = 1 - z * (1 / 2) * (1 - z * (1 / 12) * (1 - z * (1 / 30) * (1 - z * (1 / 56) * (1 - z * (1 / 90) * (1 - z * (1 / 132))))))
    if quarters & 1:
        cos, sin = -sin, cos
    if quarters & 2:
        cos, sin = -cos, -sin
    return np.float32(cos), np.float32(sin)
