"""How the cells of a KV cache lie in device memory: where one is, and its values to and from float32. Knows no attention.

A *cell* is the key or the value of one token and kv head: `dim` values. Kernels reach cells through the functions of `kv_cells` alone.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels_numba.device import address, inline
from kernels_numba.ptx import as_float, halves, load32, load64, load128, load_float4, load_shared_float4, pack_f16, store128, store_float4

KV_TYPES = {"float32": "fp32", "float16": "fp16"}
_VALUE_BYTES = {"fp32": 4, "fp16": 2}


@dataclass(frozen=True)
class Cells:
    """Device functions on the cells of one format."""

    place: Any  # (array, context, head, cell) -> address of a cell of an array [K, context] of them
    eight: Any  # (cell's address, first) -> eight float32, from value number `first` on, which eight divides
    pair: Any  # (cell's address, first) -> two, from an even number on
    # (cell's address, shared, at, lane): a cell's values from shared[at] on, four divides `at`. All 32 threads of a block call it
    # together, after a barrier: it may shuffle, and change its part of `shared`
    store: Any


@dataclass(frozen=True)
class KvCache:
    """Checked keys and values [K, context, dim] of one layer."""

    kv_format: str
    context: int
    keys: int  # addresses
    values: int


def kv_cache(keys: Any, values: Any, heads: int, dim: int) -> KvCache:
    """Where keys and values lie: float32 or float16 [heads, context, dim], of one type, 16-byte aligned; ValueError for others."""
    context, kv_type = int(keys.shape[1]), str(keys.dtype).removeprefix("torch.")
    if kv_type not in KV_TYPES:
        raise ValueError(f"keys are {kv_type}: wanted float32 or float16")
    cells = heads, context, dim
    places = address("keys", keys, kv_type, cells), address("values", values, kv_type, cells)
    if any(place % 16 for place in places):
        raise ValueError("keys and values must start at multiples of 16 bytes")
    return KvCache(KV_TYPES[kv_type], context, *places)


@functools.cache
def kv_cells(kv_format: str, dim: int) -> Cells:
    """The functions for cells of `dim` values, a multiple of eight."""
    if dim % 8:
        raise ValueError(f"cells of {dim} values: wanted a multiple of 8")
    eight, pair, store = (
        (_eight_halves, _pair_of_halves, _store_halves) if kv_format == "fp16" else (_eight_floats, _pair_of_floats, _store_floats)
    )
    return Cells(_place(dim * _VALUE_BYTES[kv_format]), eight, pair, store(dim))


def _place(cell_bytes: int) -> Any:
    @inline
    def place(array, context, head, cell):  # type: ignore[no-untyped-def]
        return array + (head * context + cell) * np.int64(cell_bytes)

    return place


@inline
def _eight_halves(cell, first):  # type: ignore[no-untyped-def]
    w = load128(cell + first * 2)
    a, b, c, d = halves(w[0]), halves(w[1]), halves(w[2]), halves(w[3])
    return a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]


@inline
def _eight_floats(cell, first):  # type: ignore[no-untyped-def]
    a, b = load_float4(cell + first * 4), load_float4(cell + first * 4 + 16)
    return a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]


@inline
def _pair_of_halves(cell, first):  # type: ignore[no-untyped-def]
    return halves(load32(cell + first * 2))


@inline
def _pair_of_floats(cell, first):  # type: ignore[no-untyped-def]
    w = load64(cell + first * 4)
    return as_float(w[0]), as_float(w[1])


def _store_halves(dim: int) -> Any:
    @inline
    def store(cell, shared, at, lane):  # type: ignore[no-untyped-def]
        for first in range(lane * 8, dim, 256):
            a, b = load_shared_float4(shared, at + first), load_shared_float4(shared, at + first + 4)
            store128(cell + first * 2, pack_f16(a[0], a[1]), pack_f16(a[2], a[3]), pack_f16(b[0], b[1]), pack_f16(b[2], b[3]))

    return store


def _store_floats(dim: int) -> Any:
    @inline
    def store(cell, shared, at, lane):  # type: ignore[no-untyped-def]
        for first in range(lane * 4, dim, 128):
            a = load_shared_float4(shared, at + first)
            store_float4(cell + first * 4, a[0], a[1], a[2], a[3])

    return store
