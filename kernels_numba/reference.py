"""Numpy truth of every storage format: bytes to float32, for tests and for the other kernels to equal bit by bit.

Block layouts are those of kernels_numba/formats.py. Knows no file and no tensor shape.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kernels_numba.formats import FORMATS
from kernels_numba.grids import IQ4_VALUES, grid, sign_bytes

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
_HALF, _QUARTER = np.float32(0.5), np.float32(0.25)


def dequantize(data: Bytes, format_name: str) -> Floats:
    """Values of whole blocks. `data`: uint8, one axis, a multiple of the format's block bytes. Exact in float32."""
    form = FORMATS[format_name]
    if data.dtype != np.uint8 or data.ndim != 1 or data.size % form.block_bytes:
        raise ValueError(f"{data.dtype} of shape {data.shape} is not whole {format_name} blocks of {form.block_bytes} bytes")
    blocks = np.ascontiguousarray(data).reshape(-1, form.block_bytes)
    return _DECODERS[format_name](blocks).reshape(-1)


def scales(blocks: Bytes) -> Floats:
    """The float16 at the head of each block, as float32 [n]."""
    return blocks[:, :2].copy().view(np.float16).astype(np.float32).reshape(-1)


def _f32(blocks: Bytes) -> Floats:
    return blocks.view(np.float32).copy()


def _f16(blocks: Bytes) -> Floats:
    return blocks.view(np.float16).astype(np.float32)


def _bf16(blocks: Bytes) -> Floats:
    return (blocks.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _q8_0(blocks: Bytes) -> Floats:
    return scales(blocks)[:, None] * blocks[:, 2:].view(np.int8).astype(np.float32)


def _q4_0(blocks: Bytes) -> Floats:
    return scales(blocks)[:, None] * (_nibbles(blocks[:, 2:], 16).astype(np.float32) - np.float32(8))


def _q2_0(blocks: Bytes) -> Floats:
    codes = blocks[:, 2:, None] >> np.arange(0, 8, 2, dtype=np.uint8) & 3
    return scales(blocks)[:, None] * (codes.reshape(len(blocks), 64).astype(np.float32) - np.float32(1))


def _iq4_nl(blocks: Bytes) -> Floats:
    return scales(blocks)[:, None] * np.array(IQ4_VALUES, np.float32)[_nibbles(blocks[:, 2:], 16)]


def _iq4_xs(blocks: Bytes) -> Floats:
    # d, 8 high scale bits of 2, 8 low ones of 4, then 8 x 16 bytes of codes
    low = _nibble_pairs(blocks[:, 4:8])
    high = blocks[:, 2:4].copy().view(np.uint16) >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    scale = (low.astype(np.int32) | high.astype(np.int32) << 4) - 32
    each = scales(blocks)[:, None] * scale.astype(np.float32)
    values = np.array(IQ4_VALUES, np.float32)[_nibbles(blocks[:, 8:], 16)]
    return np.repeat(each, 32, axis=1) * values


def _iq2_xs(blocks: Bytes) -> Floats:
    # d, 32 x (9 bits of grid point, 7 of signs), 16 scales of 4 bits
    codes = blocks[:, 2:66].copy().view(np.uint16)
    each = (scales(blocks)[:, None] * (_HALF + _nibble_pairs(blocks[:, 66:]).astype(np.float32))) * _QUARTER
    values: Floats = np.repeat(each, 16, axis=1) * grid("IQ2_XS")[codes & 511].reshape(len(blocks), 256)
    return values * _signs(sign_bytes()[codes >> 9])


def _iq2_s(blocks: Bytes) -> Floats:
    # d, 32 low bytes of grid point, 32 sign bytes, 8 bytes of 2 high bits, 16 scales of 4 bits
    high = (blocks[:, 66:74, None] >> np.arange(0, 8, 2, dtype=np.uint8) & 3).reshape(len(blocks), 32)
    points = blocks[:, 2:34].astype(np.int32) | high.astype(np.int32) << 8
    each = (scales(blocks)[:, None] * (_HALF + _nibble_pairs(blocks[:, 74:]).astype(np.float32))) * _QUARTER
    values: Floats = np.repeat(each, 16, axis=1) * grid("IQ2_S")[points].reshape(len(blocks), 256)
    return values * _signs(blocks[:, 34:66])


def _iq3_xxs(blocks: Bytes) -> Floats:
    # d, 64 bytes of grid point, 8 x (4 x 7 bits of signs, 4 bits of scale)
    words = blocks[:, 66:].copy().view(np.uint32)
    each = (scales(blocks)[:, None] * (_HALF + (words >> 28).astype(np.float32))) * _HALF
    seven = (words[:, :, None] >> np.array([0, 7, 14, 21], np.uint32) & 127).reshape(len(blocks), 32)
    values: Floats = np.repeat(each, 32, axis=1) * grid("IQ3_XXS")[blocks[:, 2:66]].reshape(len(blocks), 256)
    return values * _signs(sign_bytes()[seven])


def _iq3_s(blocks: Bytes) -> Floats:
    # d, 64 low bytes of grid point, 8 bytes of one high bit each, 32 sign bytes, 8 scales of 4 bits
    high = np.unpackbits(np.ascontiguousarray(blocks[:, 66:74]), axis=1, bitorder="little")
    points = blocks[:, 2:66].astype(np.int32) | high.astype(np.int32) << 8
    odd = 1 + 2 * _nibble_pairs(blocks[:, 106:]).astype(np.int32)
    each = scales(blocks)[:, None] * odd.astype(np.float32)
    values: Floats = np.repeat(each, 32, axis=1) * grid("IQ3_S")[points].reshape(len(blocks), 256)
    return values * _signs(blocks[:, 74:106])


def _q4_k(blocks: Bytes) -> Floats:
    # d, least d, 8 scales and 8 minima of 6 bits in 12 bytes, then 4 x 32 bytes of codes
    return _scaled_k(blocks, _nibbles(blocks[:, 16:], 32))


def _q5_k(blocks: Bytes) -> Floats:
    # as Q4_K, with 32 bytes of fifth bits before the codes: bit j is of the j-th run of 32 values
    fifth = (blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1).reshape(len(blocks), 256)
    return _scaled_k(blocks, (_nibbles(blocks[:, 48:], 32) | fifth << 4).astype(np.uint8))


def _scaled_k(blocks: Bytes, codes: Bytes) -> Floats:
    packed = blocks[:, 4:16]
    first, second, last = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    levels = np.concatenate([first & 63, last & 15 | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 63, last >> 4 | second >> 6 << 4], axis=1)
    each = scales(blocks)[:, None] * levels.astype(np.float32)
    least = scales(blocks[:, 2:])[:, None] * minima.astype(np.float32)
    return np.repeat(each, 32, axis=1) * codes.astype(np.float32) - np.repeat(least, 32, axis=1)


def _q6_k(blocks: Bytes) -> Floats:
    # two halves of (64 bytes of low nibbles, 32 bytes of 2 high bits), 16 int8 scales, d
    low = _nibbles(blocks[:, :128], 64)
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3).reshape(len(blocks), 256)
    each = scales(blocks[:, 208:])[:, None] * blocks[:, 192:208].view(np.int8).astype(np.float32)
    return np.repeat(each, 16, axis=1) * ((low | high << 4).astype(np.float32) - np.float32(32))


def _nibbles(packed: Bytes, run: int) -> Bytes:
    """Low nibbles of each run of bytes, then its high ones: [n, bytes] to [n, 2 x bytes]."""
    runs = packed.reshape(len(packed), -1, run)
    return np.concatenate([runs & 15, runs >> 4], axis=2).reshape(len(packed), -1)


def _nibble_pairs(packed: Bytes) -> Bytes:
    """Low and high nibble of each byte, in turn."""
    return np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1)


def _signs(eights: Bytes) -> Floats:
    """Eight signs a byte, low bit first: [n, bytes] to [n, 8 x bytes] of +1 and -1."""
    bits = np.unpackbits(np.ascontiguousarray(eights)[:, :, None], axis=2, bitorder="little")
    return (np.float32(1) - np.float32(2) * bits.astype(np.float32)).reshape(len(eights), -1)


_DECODERS: dict[str, Callable[[Bytes], Floats]] = {
    "F32": _f32, "F16": _f16, "BF16": _bf16, "Q8_0": _q8_0, "Q4_0": _q4_0, "Q2_0": _q2_0,
    "IQ4_NL": _iq4_nl, "IQ4_XS": _iq4_xs, "IQ2_XS": _iq2_xs, "IQ2_S": _iq2_s, "IQ3_XXS": _iq3_xxs, "IQ3_S": _iq3_s,
    "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k,
}  # fmt: skip
