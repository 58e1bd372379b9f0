"""int8 rows, bit for bit the numpy truth."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference_ops
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.gpu.quantize_rows import quantize_rows, round_rows
from tests.kernels.rows import edge_rows

SHAPES = [(1, 32), (3, 40), (2, 1), (0, 64)] if SIMULATED else [(1, 32), (3, 40), (2, 1), (0, 64), (7, 2560), (70_000, 640)]


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_reference(shape: tuple[int, int]) -> None:
    check(np.random.default_rng(shape[1]).standard_normal(shape).astype(np.float32))


def test_edges() -> None:
    check(edge_rows())


def check(x: np.ndarray) -> None:
    codes, scales = reference_ops.quantize_rows(x)
    got_codes, got_scales = to_device(np.full(codes.shape, 99, np.int8)), to_device(np.full(scales.shape, -1, np.float32))
    quantize_rows(to_device(x), got_codes, got_scales)
    assert (to_host(got_codes) == codes).all()
    assert np.array_equal(to_host(got_scales), scales, equal_nan=True)
    rounded = to_device(x)
    round_rows(rounded, rounded)
    assert np.array_equal(to_host(rounded), reference_ops.round_rows(x), equal_nan=True)
