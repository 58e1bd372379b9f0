"""Numpy truth of rounded keys and values: rows of float32 to cells of bytes, and back, to the bit. Knows no attention.

A group's scale is stored as float16, to nearest even, and its codes are made with the stored scale: c = rint(value / scale), to even.
A scale of 0 has values of 0; one that is infinite or a NaN makes its whole group NaN, so that nothing wrong looks like a number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels_numba.kv_formats import KV_FORMATS

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


def rotate(x: Floats, name: str) -> Floats:
    """Rows [.., D] times the orthonormal Hadamard matrix of the format, part by part: x for formats that do not rotate. Its own inverse.

    Sums and differences of pairs 1, 2, 4, .. apart, in that order, then one product with float32(1 / sqrt(size)).
    """
    size, step = KV_FORMATS[name].rotation(x.shape[-1]), 1
    if size == 1:
        return x
    parts = x.astype(np.float32).reshape(-1, size)
    while step < size:
        pairs = parts.reshape(-1, size // (2 * step), 2, step)
        low, high = pairs[:, :, 0], pairs[:, :, 1]
        parts = np.stack((low + high, low - high), axis=2).reshape(-1, size)
        step *= 2
    return (parts * np.float32(size**-0.5)).reshape(x.shape)


def encode(x: Floats, name: str) -> Bytes:
    """float32 [.., D] -> cells [.., bytes] of the rotated rows.

    int8: scale = max |value| / 127, codes -127 to 127. q4_0: scale = m / -8 with m the value of largest magnitude (the negative one of
    two), codes c + 8 from 0 to 15, two a byte, the first one low.
    """
    rows = rotate(x, name)
    if name in ("fp32", "fp16"):
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(rows.astype({"fp32": np.float32, "fp16": np.float16}[name])).view(np.uint8)
    codes, scales = (_codes_of_8 if name == "int8" else _codes_of_4)(_grouped(rows, name))
    codes = codes.reshape(*x.shape[:-1], -1)[..., : KV_FORMATS[name].code_bytes(x.shape[-1])]
    return np.concatenate([codes, scales.reshape(*x.shape[:-1], -1).view(np.uint8)], axis=-1)


def decode(cells: Bytes, dim: int, name: str) -> Floats:
    """cells [.., bytes] -> float32 [.., dim], code * scale: the rows as they were rotated, to be read by rotated queries."""
    if name in ("fp32", "fp16"):
        return np.ascontiguousarray(cells).view({"fp32": np.float32, "fp16": np.float16}[name]).astype(np.float32)
    form = KV_FORMATS[name]
    stored = np.ascontiguousarray(cells[..., : form.code_bytes(dim)])
    scales = np.ascontiguousarray(cells[..., form.code_bytes(dim) :]).view(np.float16).astype(np.float32)
    codes = stored.view(np.int8) if name == "int8" else np.stack((stored & 15, stored >> 4), axis=-1).reshape(*cells.shape[:-1], -1)
    whole = codes.astype(np.float32) - np.float32(0 if name == "int8" else 8)
    with np.errstate(invalid="ignore"):
        return whole[..., :dim] * np.repeat(scales, form.group, axis=-1)[..., :dim]


def _grouped(rows: Floats, name: str) -> Floats:
    group = KV_FORMATS[name].group
    padded = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, -rows.shape[-1] % group)])
    return padded.reshape(*rows.shape[:-1], -1, group)


def _codes_of_8(groups: Floats) -> tuple[Bytes, NDArray[np.float16]]:
    codes, scales = _divided(groups, np.abs(groups).max(axis=-1) / np.float32(127))
    return np.clip(codes, -127, 127).astype(np.int8).view(np.uint8), scales


def _codes_of_4(groups: Floats) -> tuple[Bytes, NDArray[np.float16]]:
    largest = np.abs(groups).max(axis=-1)
    negative = (groups == -largest[..., None]).any(axis=-1)
    codes, scales = _divided(groups, np.where(negative, -largest, largest) * np.float32(-0.125))
    nibbles = (np.clip(codes, -8, 7) + 8).astype(np.uint8)
    return nibbles[..., ::2] | nibbles[..., 1::2] << 4, scales


def _divided(groups: Floats, scales: Any) -> tuple[Floats, NDArray[np.float16]]:
    """Values in units of their group's stored scale, to whole ones; and the scales."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        stored = scales.astype(np.float16)
        units = np.rint(groups / stored.astype(np.float32)[..., None])
    usable = np.isfinite(stored) & (stored != 0)
    return np.where(usable[..., None], units, np.float32(0)), stored
