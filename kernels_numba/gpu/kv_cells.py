"""How the cells of a KV cache lie in device memory: where one is, and its values to and from float32. Knows no attention.

A *cell* is the key or the value of one token and kv head: `dim` values. Kernels reach cells through the functions of `kv_cells` alone.
An array's dtype names its format: float32 or float16 [K, context, D]; int8, or uint8 for q4_0, [K, context, bytes of a cell].
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels_numba.device import address, inline
from kernels_numba.gpu.kv_codes import eight_of, pair_of, rotator, store_of
from kernels_numba.kv_formats import KV_FORMATS
from kernels_numba.ptx import as_float, halves, load32, load64, load128, load_float4, load_shared_float4, pack_f16, store128, store_float4

KV_TYPES = {"float32": "fp32", "float16": "fp16", "int8": "int8", "uint8": "q4_0"}


@dataclass(frozen=True)
class Cells:
    """Device functions on the cells of one format."""

    place: Any  # (array, context, head, cell) -> address of a cell of an array [K, context] of them
    eight: Any  # (cell's address, first) -> eight float32, from value number `first` on, which eight divides
    pair: Any  # (cell's address, first) -> two, from an even number on
    # by all 32 threads of a block together, after a barrier; four divides `at`:
    store: Any  # (cell's address, shared, at, lane): a cell's values from shared[at] on; it may change these there
    rotate: Any  # (shared, at, lane): a query before it reads keys, or what was read of values after it; see kv_codes.rotator


@dataclass(frozen=True)
class CellArray:
    """Checked keys or values of one layer."""

    kv_format: str
    context: int
    at: int  # its address


@dataclass(frozen=True)
class KvCache:
    """Checked keys and values of one layer."""

    kv_format: str
    context: int
    keys: int  # addresses
    values: int


def cell_array(name: str, array: Any, heads: int, dim: int) -> CellArray:
    """Where keys or values lie, 16-byte aligned, and their format; ValueError for other types, shapes and places."""
    context, kv_type = int(array.shape[1]), str(array.dtype).removeprefix("torch.")
    if kv_type not in KV_TYPES:
        raise ValueError(f"{name} are {kv_type}: wanted {', '.join(KV_TYPES)}")
    form = KV_FORMATS[KV_TYPES[kv_type]]
    at = address(name, array, kv_type, (heads, context, form.cell_bytes(dim) if form.group else dim))
    if at % 16:
        raise ValueError(f"{name} must start at a multiple of 16 bytes")
    return CellArray(form.name, context, at)


def kv_cache(keys: Any, values: Any, heads: int, dim: int) -> KvCache:
    """Keys and values of one format and context, checked."""
    a, b = cell_array("keys", keys, heads, dim), cell_array("values", values, heads, dim)
    if (a.kv_format, a.context) != (b.kv_format, b.context):
        raise ValueError(f"values are {b.kv_format} for {b.context} tokens, wanted {a.kv_format} for {a.context} as keys are")
    return KvCache(a.kv_format, a.context, a.at, b.at)


@functools.cache
def kv_cells(kv_format: str, dim: int) -> Cells:
    """The functions for cells of `dim` values, a multiple of eight."""
    if dim % 8:
        raise ValueError(f"cells of {dim} values: wanted a multiple of 8")
    form = KV_FORMATS[kv_format]
    place, rotate = _place(form.cell_bytes(dim)), rotator(kv_format, dim)
    if form.group:
        return Cells(place, eight_of(form, dim), pair_of(form, dim), store_of(form, dim), rotate)
    if form.bits == 16:
        return Cells(place, _eight_halves, _pair_of_halves, _store_halves(dim), rotate)
    return Cells(place, _eight_floats, _pair_of_floats, _store_floats(dim), rotate)


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
