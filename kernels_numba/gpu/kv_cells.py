"""How the cells of a KV cache lie in device memory: where one is, and its values to and from float32. Knows no attention.

A *cell* is the key or the value of one token and kv head: `dim` values. Kernels reach cells through the functions of `kv_cells` alone.
An array's dtype names its format: float32 or float16 [K, context, D]; int8, or uint8 for q4_0, [K, context, bytes of a cell].
Where an array is wanted, anything with two of them will do: the first cells in `near`, the others in `far`, which is in page-locked RAM.
Its `far_address`, unless there is none or it is None, says where the device finds these: not every system has them where the host does.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels_numba.device import address, inline, locked_address
from kernels_numba.gpu.kv_codes import eight_of, pair_of, rotator, store_of
from kernels_numba.kv_formats import KV_FORMATS, KV_OF_TYPE
from kernels_numba.ptx import as_float, halves, load32, load64, load128, load_float4, load_shared_float4, pack_f16, store128, store_float4


@dataclass(frozen=True)
class Cells:
    """Device functions on the cells of one format."""

    array: Any  # (near, far, resident) -> the array that `place` takes: addresses, and the number of cells a head in the first
    place: Any  # (array, context, head, cell) -> address of a cell of [K, context] of them
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
    at: int  # addresses
    far: int  # 0: all cells are at the first
    resident: int


@dataclass(frozen=True)
class KvCache:
    """Checked keys and values of one layer."""

    kv_format: str
    context: int
    keys: int  # addresses
    values: int
    far_keys: int
    far_values: int
    resident: int

    @property
    def is_split(self) -> bool:
        return self.far_keys != 0


def cell_array(name: str, array: Any, heads: int, dim: int) -> CellArray:
    """Where keys or values lie, aligned as whole cells allow, and their format; ValueError for other types, shapes and places."""
    near, far = getattr(array, "near", array), getattr(array, "far", None)
    resident, kv_type = int(near.shape[1]), str(near.dtype).removeprefix("torch.")
    if kv_type not in KV_OF_TYPE:
        raise ValueError(f"{name} are {kv_type}: wanted {', '.join(KV_OF_TYPE)}")
    form = KV_FORMATS[KV_OF_TYPE[kv_type]]
    width, others = form.cell_bytes(dim) if form.group else dim, 0 if far is None else int(far.shape[1])
    at = address(name, near, kv_type, (heads, resident, width))
    beyond = 0 if far is None else locked_address(f"{name} beyond {resident}", far, kv_type, (heads, others, width))
    if beyond and getattr(array, "far_address", None) is not None:
        beyond = int(array.far_address)
    alignment = math.gcd(16, form.cell_bytes(dim))
    if at % alignment or beyond % alignment:
        raise ValueError(f"{name} must start at a multiple of {alignment} bytes")
    return CellArray(form.name, resident + others, at, beyond, resident)


def num_heads(array: Any) -> int:
    """Kv heads of keys or values."""
    return int(getattr(array, "near", array).shape[0])


def kv_cache(keys: Any, values: Any, heads: int, dim: int) -> KvCache:
    """Keys and values of one format, context and split, checked."""
    a, b = cell_array("keys", keys, heads, dim), cell_array("values", values, heads, dim)
    if (a.kv_format, a.context, a.resident) != (b.kv_format, b.context, b.resident):
        wanted = f"{a.kv_format} for {a.context}, {a.resident} of them near"
        raise ValueError(f"values are {b.kv_format} for {b.context} tokens, {b.resident} of them near: wanted {wanted}, as keys are")
    return KvCache(a.kv_format, a.context, a.at, b.at, a.far, b.far, a.resident)


@functools.cache
def kv_cells(kv_format: str, dim: int, is_split: bool = False) -> Cells:
    """The functions for cells of `dim` values, a multiple of eight."""
    if dim % 8:
        raise ValueError(f"cells of {dim} values: wanted a multiple of 8")
    form = KV_FORMATS[kv_format]
    array, place = (_both, _place_in_two(form.cell_bytes(dim))) if is_split else (_near, _place(form.cell_bytes(dim)))
    rotate = rotator(kv_format, dim)
    if form.group:
        return Cells(array, place, eight_of(form, dim), pair_of(form, dim), store_of(form, dim), rotate)
    if form.bits == 16:
        return Cells(array, place, _eight_halves, _pair_of_halves, _store_halves(dim), rotate)
    return Cells(array, place, _eight_floats, _pair_of_floats, _store_floats(dim), rotate)


@inline
def _near(near, far, resident):  # type: ignore[no-untyped-def]
    return near


@inline
def _both(near, far, resident):  # type: ignore[no-untyped-def]
    return near, far, resident


def _place(cell_bytes: int) -> Any:
    @inline
    def place(array, context, head, cell):  # type: ignore[no-untyped-def]
        return array + (head * context + cell) * np.int64(cell_bytes)

    return place


def _place_in_two(cell_bytes: int) -> Any:
    @inline
    def place(array, context, head, cell):  # type: ignore[no-untyped-def]
        near, far, resident = array
        if cell < resident:
            return near + (head * resident + cell) * np.int64(cell_bytes)
        return far + (head * (context - resident) + cell - resident) * np.int64(cell_bytes)

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
