"""Rows into cells, bit for bit the numpy truth: every format, whole and broken groups, values that have no code."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference_kv
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.gpu.kv_store import kv_store
from kernels_numba.kv_formats import KV_OF_TYPE
from tests.gpu.split_cells import split
from tests.kernels.rows import kv_rows

TYPES = {name: kv_type for kv_type, name in KV_OF_TYPE.items()}
DIMS = [8, 96] if SIMULATED else [8, 24, 32, 40, 64, 72, 96, 128, 192, 256, 512, 768]
TOKENS = 3 if SIMULATED else 300


def empty(name: str, heads: int, context: int, dim: int) -> np.ndarray:
    """Cells full of 0x5A."""
    width = reference_kv.encode(np.zeros((1, dim), np.float32), name).shape[-1] // np.dtype(TYPES[name]).itemsize
    return np.full((heads, context, width * np.dtype(TYPES[name]).itemsize), 0x5A, np.uint8).view(TYPES[name])


@pytest.mark.parametrize("name", list(TYPES))
@pytest.mark.parametrize("dim", DIMS)
def test_equals_the_truth(name: str, dim: int) -> None:
    check(kv_rows(2 * TOKENS, dim).reshape(TOKENS, 2, dim), name)


@pytest.mark.parametrize("name", ["int8", "q4_0"])
def test_scales_of_every_size(name: str) -> None:
    """From below float16's smallest to above its largest, exact halves of a step, and no numbers at all."""
    rng = np.random.default_rng(2)
    rows = (rng.standard_normal((TOKENS, 2, 64)) * 10.0 ** rng.uniform(-10, 8, (TOKENS, 2, 1))).astype(np.float32)
    rows[0, 0] = np.arange(64) - np.float32(31.5)
    rows[0, 0, 0], rows[0, 1] = 127, 0
    rows[1, 0, 5], rows[1, 1, 40], rows[2, 0, 0], rows[2, 1, 63] = np.nan, np.inf, -np.inf, 1e9
    check(rows, name)


@pytest.mark.parametrize("resident", [2, 5] if SIMULATED else [1, 3, 5, 130, 302])
@pytest.mark.parametrize("name", list(TYPES))
def test_cells_in_two_places(name: str, resident: int) -> None:
    """Cut before, at and inside what is written: the same bytes, and nothing beside them."""
    rows = kv_rows(2 * TOKENS, 40).reshape(TOKENS, 2, 40)
    whole, parts = to_device(empty(name, 2, TOKENS + 4, 40)), split(empty(name, 2, TOKENS + 4, 40), resident)
    kv_store(to_device(rows), whole, 3)
    kv_store(to_device(rows), parts, 3)
    assert parts.joined().tobytes() == to_host(whole).tobytes()


def check(rows: np.ndarray, name: str, start: int = 3) -> None:
    tokens, heads, dim = rows.shape
    cells = to_device(empty(name, heads, start + tokens + 1, dim))
    kv_store(to_device(rows), cells, start)
    got = to_host(cells).view(np.uint8)
    want = reference_kv.encode(rows, name).transpose(1, 0, 2)
    values = reference_kv.decode(want, dim, name)
    part = got[:, start : start + tokens]
    assert np.array_equal(reference_kv.decode(part, dim, name), values, equal_nan=True)
    sound = np.isfinite(values).all(-1)  # a NaN's bits are nobody's business
    assert (part[sound] == want[sound]).all()
    assert (got[:, :start] == 0x5A).all() and (got[:, start + tokens :] == 0x5A).all()


def test_no_tokens_launch_nothing_and_wrong_arguments_are_refused() -> None:
    cells = to_device(empty("q4_0", 2, 9, 32))
    kv_store(to_device(np.zeros((0, 2, 32), np.float32)), cells, 9)
    rows = to_device(np.zeros((2, 2, 32), np.float32))
    with pytest.raises(ValueError, match="rows of positions 8 to 10 for a context of 9"):
        kv_store(rows, cells, 8)
    with pytest.raises(ValueError, match=r"cells is uint8 of shape \(2, 9, 18\), wanted uint8 of shape \(2, 9, 36\)"):
        kv_store(to_device(np.zeros((2, 2, 64), np.float32)), cells, 0)
    with pytest.raises(ValueError, match="cells are float64: wanted float32, float16, int8, uint8"):
        kv_store(rows, to_device(np.zeros((2, 9, 32))), 0)
    with pytest.raises(ValueError, match="cells of 12 values: wanted a multiple of 8"):
        kv_store(to_device(np.zeros((1, 2, 12), np.float32)), to_device(np.zeros((2, 9, 12), np.float32)), 0)
