"""The loops of cpu/dequantize.py: one function a quantized format, plain Python until numba compiles it. Allocates nothing.

blocks [n, block bytes] uint8, scales [n] float32 (and minima, where a format has them), out [n, block values] float32.
"""

from __future__ import annotations

import numpy as np
from numba import prange

_HALF, _QUARTER, _ONE, _EIGHT, _32 = np.float32(0.5), np.float32(0.25), np.float32(1), np.float32(8), np.float32(32)


def q8_0(blocks, scales, out):  # type: ignore[no-untyped-def]
    for n in prange(blocks.shape[0]):
        for i in range(32):
            out[n, i] = scales[n] * np.float32(np.int8(blocks[n, 2 + i]))


def q4_0(blocks, scales, out):  # type: ignore[no-untyped-def]
    for n in prange(blocks.shape[0]):
        for i in range(16):
            pair = blocks[n, 2 + i]
            out[n, i] = scales[n] * (np.float32(pair & 15) - _EIGHT)
            out[n, 16 + i] = scales[n] * (np.float32(pair >> 4) - _EIGHT)


def q2_0(blocks, scales, out):  # type: ignore[no-untyped-def]
    for n in prange(blocks.shape[0]):
        for i in range(16):
            four = blocks[n, 2 + i]
            for j in range(4):
                out[n, 4 * i + j] = scales[n] * (np.float32(four >> (2 * j) & 3) - _ONE)


def iq4_nl(blocks, scales, out, values):  # type: ignore[no-untyped-def]
    for n in prange(blocks.shape[0]):
        for i in range(16):
            pair = blocks[n, 2 + i]
            out[n, i] = scales[n] * values[pair & 15]
            out[n, 16 + i] = scales[n] * values[pair >> 4]


def iq4_xs(blocks, scales, out, values):  # type: ignore[no-untyped-def]
    for n in prange(blocks.shape[0]):
        high = np.int32(blocks[n, 2]) | np.int32(blocks[n, 3]) << 8
        for part in range(8):
            low = np.int32(blocks[n, 4 + part // 2]) >> (4 * (part % 2)) & 15
            scale = scales[n] * np.float32((low | (high >> (2 * part) & 3) << 4) - 32)
            for i in range(16):
                pair = blocks[n, 8 + 16 * part + i]
                out[n, 32 * part + i] = scale * values[pair & 15]
                out[n, 32 * part + 16 + i] = scale * values[pair >> 4]


def iq2_xs(blocks, scales, out, points, signs):  # type: ignore[no-untyped-def]
    for n in prange(blocks.shape[0]):
        for eight in range(32):
            code = np.int32(blocks[n, 2 + 2 * eight]) | np.int32(blocks[n, 3 + 2 * eight]) << 8
            nibble = blocks[n, 66 + eight // 4] >> (4 * (eight // 2 % 2)) & 15
            scale = scales[n] * (_HALF + np.float32(nibble)) * _QUARTER
            minus = signs[code >> 9]
            for i in range(8):
                value = scale * points[code & 511, i]
                out[n, 8 * eight + i] = -value if minus >> i & 1 else value


def iq2_s(blocks, scales, out, points):  # type: ignore[no-untyped-def]
    for n in prange(blocks.shape[0]):
        for eight in range(32):
            code = np.int32(blocks[n, 2 + eight]) | (np.int32(blocks[n, 66 + eight // 4]) >> (2 * (eight % 4)) & 3) << 8
            nibble = blocks[n, 74 + eight // 4] >> (4 * (eight // 2 % 2)) & 15
            scale = scales[n] * (_HALF + np.float32(nibble)) * _QUARTER
            minus = blocks[n, 34 + eight]
            for i in range(8):
                value = scale * points[code, i]
                out[n, 8 * eight + i] = -value if minus >> i & 1 else value


def iq3_s(blocks, scales, out, points):  # type: ignore[no-untyped-def]
    for n in prange(blocks.shape[0]):
        for part in range(8):
            scale = scales[n] * np.float32(1 + 2 * (blocks[n, 106 + part // 2] >> (4 * (part % 2)) & 15))
            for four in range(8):
                code = np.int32(blocks[n, 2 + 8 * part + four]) | (np.int32(blocks[n, 66 + part]) >> four & 1) << 8
                minus = blocks[n, 74 + 4 * part + four // 2] >> (4 * (four % 2))
                for i in range(4):
                    value = scale * points[code, i]
                    out[n, 32 * part + 4 * four + i] = -value if minus >> i & 1 else value


def iq3_xxs(blocks, scales, out, points, signs):  # type: ignore[no-untyped-def]
    for n in prange(blocks.shape[0]):
        for part in range(8):
            at = 66 + 4 * part
            word = np.int64(blocks[n, at]) | np.int64(blocks[n, at + 1]) << 8
            word |= np.int64(blocks[n, at + 2]) << 16 | np.int64(blocks[n, at + 3]) << 24
            scale = scales[n] * (_HALF + np.float32(word >> 28)) * _HALF
            for four in range(8):
                minus = signs[word >> (7 * (four // 2)) & 127] >> (4 * (four % 2))
                code = blocks[n, 2 + 8 * part + four]
                for i in range(4):
                    value = scale * points[code, i]
                    out[n, 32 * part + 4 * four + i] = -value if minus >> i & 1 else value


def q4_k(blocks, scales, out, minima):  # type: ignore[no-untyped-def]
    for n in prange(blocks.shape[0]):
        for part in range(8):
            low, high = blocks[n, 4 + part % 4], blocks[n, 8 + part % 4]
            last = blocks[n, 12 + part % 4]
            level = low & 63 if part < 4 else last & 15 | low >> 6 << 4
            least = high & 63 if part < 4 else last >> 4 | high >> 6 << 4
            scale, shift = scales[n] * np.float32(level), minima[n] * np.float32(least)
            for i in range(32):
                code = blocks[n, 16 + 32 * (part // 2) + i] >> (4 * (part % 2)) & 15
                product = scale * np.float32(code)
                out[n, 32 * part + i] = product - shift


def q5_k(blocks, scales, out, minima):  # type: ignore[no-untyped-def]
    for n in prange(blocks.shape[0]):
        for part in range(8):
            low, high = blocks[n, 4 + part % 4], blocks[n, 8 + part % 4]
            last = blocks[n, 12 + part % 4]
            level = low & 63 if part < 4 else last & 15 | low >> 6 << 4
            least = high & 63 if part < 4 else last >> 4 | high >> 6 << 4
            scale, shift = scales[n] * np.float32(level), minima[n] * np.float32(least)
            for i in range(32):
                code = blocks[n, 48 + 32 * (part // 2) + i] >> (4 * (part % 2)) & 15
                product = scale * np.float32(code | (blocks[n, 16 + i] >> part & 1) << 4)
                out[n, 32 * part + i] = product - shift


def q6_k(blocks, scales, out):  # type: ignore[no-untyped-def]
    for n in prange(blocks.shape[0]):
        for part in range(16):
            scale = scales[n] * np.float32(np.int8(blocks[n, 192 + part]))
            half, run = part // 8, part % 8 // 2  # halves of 128 values, runs of 32
            for i in range(16):
                at = 16 * (part % 2) + i
                low = blocks[n, 64 * half + 32 * (run % 2) + at] >> (4 * (run // 2)) & 15
                high = blocks[n, 128 + 32 * half + at] >> (2 * run) & 3
                out[n, 16 * part + i] = scale * (np.float32(low | high << 4) - _32)
