"""Cells of every kv format, stored and loaded: what comes back, and that a cell's neighbours stay as they were."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from numba import float32

from kernels_numba import reference_kv
from kernels_numba.device import Kernel, address, cuda, to_device, to_host
from kernels_numba.gpu.kv_cells import kv_cache, kv_cells
from kernels_numba.kv_formats import KV_OF_TYPE
from kernels_numba.ptx import load_float, store_float
from tests.gpu.split_cells import split

CASES = [(kv_type, dim) for kv_type in KV_OF_TYPE for dim in (8, 24, 96, 256)]


@pytest.mark.parametrize(("kv_type", "dim"), CASES)
def test_what_is_stored_is_loaded(kv_type: str, dim: int) -> None:
    heads, context = 2, 5
    rows = np.random.default_rng(dim).standard_normal((heads, dim)).astype(np.float32)
    stored = reference_kv.encode(rows, KV_OF_TYPE[kv_type]).view(kv_type)
    cells = to_device(np.full((heads, context, stored.shape[-1]), 7, kv_type))
    eights, pairs = (to_device(np.zeros((heads, dim), np.float32)) for _ in range(2))
    source, places = to_device(rows), (heads, dim)
    pointers = [address(name, part, "float32", places) for name, part in (("rows", source), ("eights", eights), ("pairs", pairs))]
    cache = kv_cache(cells, cells, heads, dim)
    store_kernel(cache.kv_format, dim).launch(heads, 0, pointers[0], cache.keys, context, 3)
    load_kernel(cache.kv_format, dim).launch(heads, 0, pointers[1], pointers[2], cache.keys, context, 3)
    want, held = reference_kv.decode(stored.view(np.uint8), dim, KV_OF_TYPE[kv_type]), to_host(cells)
    assert (held[:, 3] == stored).all() and (np.delete(held, 3, axis=1) == 7).all()
    assert (to_host(eights) == want).all() and (to_host(pairs) == want).all()


def test_other_types_places_and_widths_are_refused() -> None:
    keys = to_device(np.zeros((2, 5, 8), np.float32))
    with pytest.raises(ValueError, match="keys are int32: wanted float32, float16, int8, uint8"):
        kv_cache(to_device(np.zeros((2, 5, 8), np.int32)), keys, 2, 8)
    with pytest.raises(ValueError, match="values are fp16 for 5 tokens, 5 of them near: wanted fp32 for 5, 5 of them near, as keys are"):
        kv_cache(keys, to_device(np.zeros((2, 5, 8), np.float16)), 2, 8)
    with pytest.raises(ValueError, match="cells of 12 values: wanted a multiple of 8"):
        kv_cells("fp32", 12)


@pytest.mark.parametrize("far_address", [None, 1 << 44])
def test_cells_beyond_are_where_the_device_finds_them(far_address: int | None) -> None:
    """Their host's address is it where none is told; one that cells do not begin at is refused."""
    cells = [split(np.zeros((2, 5, 8), np.float32), 3) for _ in range(2)]
    told = [SimpleNamespace(near=part.near, far=part.far, far_address=far_address) for part in cells]
    cache = kv_cache(*told, 2, 8)
    assert (cache.far_keys, cache.far_values) == tuple(far_address or part.far.ctypes.data for part in cells)
    with pytest.raises(ValueError, match="keys must start at a multiple of 16 bytes"):
        kv_cache(SimpleNamespace(near=cells[0].near, far=cells[0].far, far_address=(1 << 44) + 4), told[1], 2, 8)


def store_kernel(kv_format: str, dim: int) -> Kernel:
    cells = kv_cells(kv_format, dim)
    place, store = cells.place, cells.store

    def store_cells(rows, array, context, cell):  # type: ignore[no-untyped-def]
        shared = cuda.shared.array(dim, float32)
        lane, head = np.int32(cuda.threadIdx.x), np.int64(cuda.blockIdx.x)
        for i in range(lane, dim, 32):
            shared[i] = load_float(rows + (head * dim + i) * 4)
        cuda.syncthreads()
        store(place(array, context, head, cell), shared, 0, lane)

    return Kernel(store_cells, "i64 i64 i64 i64", 32)


def load_kernel(kv_format: str, dim: int) -> Kernel:
    cells = kv_cells(kv_format, dim)
    place, eight, pair = cells.place, cells.eight, cells.pair

    def load_cells(eights, pairs, array, context, cell):  # type: ignore[no-untyped-def]
        lane, head = np.int32(cuda.threadIdx.x), np.int64(cuda.blockIdx.x)
        row = place(array, context, head, cell)
        for first in range(lane * 8, dim, 256):
            v = eight(row, first)
            for i in range(8):
                store_float(eights + (head * dim + first + i) * 4, v[i])
        for first in range(lane * 2, dim, 64):
            v = pair(row, first)
            for i in range(2):
                store_float(pairs + (head * dim + first + i) * 4, v[i])

    return Kernel(load_cells, "i64 i64 i64 i64 i64", 32)
