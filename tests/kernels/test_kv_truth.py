"""The numpy truth of rounded keys and values: by hand, against an explicit Hadamard matrix, and how far it may be off."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba.kv_formats import KV_FORMATS
from kernels_numba.reference_kv import decode, encode, rotate
from strata_recipes.plan.budget import kv_row_bytes
from tests.kernels.rows import kv_rows

DIMS = [1, 8, 24, 32, 33, 64, 72, 96, 128, 256, 512]


@pytest.mark.parametrize("name", list(KV_FORMATS))
@pytest.mark.parametrize("dim", DIMS)
def test_cells_take_what_is_planned(name: str, dim: int) -> None:
    cells = encode(kv_rows(3, dim), name)
    assert cells.shape == (3, kv_row_bytes(dim, name)) and KV_FORMATS[name].cell_bytes(dim) == kv_row_bytes(dim, name)


def test_bytes_by_hand() -> None:
    row = np.zeros((1, 64), np.float32)
    row[0, :5] = [127.0, -63.5, 2.5, 1.5, -0.5]  # the scale is 1: 2.5 and -0.5 go to even
    assert encode(row, "int8")[0].tolist() == [127, 256 - 64, 2, 2, 0, *[0] * 59, 0x00, 0x3C]
    odd = np.array([[8.0, -8.0, 7.6, -1.5, 0.5]], np.float32)  # five values are not mixed; of 8 and -8 the negative one counts: scale 1
    assert encode(odd, "q4_0")[0].tolist() == [15 | 0 << 4, 15 | 6 << 4, 8 | 8 << 4, *[0x88] * 13, 0x00, 0x3C]
    assert decode(encode(odd, "q4_0"), 5, "q4_0").tolist() == [[7.0, -8.0, 7.0, -2.0, 0.0]]
    positive = np.array([[4.0, -2.0, 1.0]], np.float32)  # scale -0.5
    assert encode(positive, "q4_0")[0, -2:].tolist() == [0x00, 0xB8]
    assert decode(encode(positive, "q4_0"), 3, "q4_0").tolist() == [[4.0, -2.0, 1.0]]


@pytest.mark.parametrize(("dim", "size"), [(1, 1), (33, 1), (24, 8), (72, 8), (96, 32), (256, 256), (768, 256), (1024, 256)])
def test_rotation_is_the_hadamard_matrix(dim: int, size: int) -> None:
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    x = kv_rows(7, dim)
    want = (x.reshape(7, -1, size).astype(np.float64) @ (matrix / size**0.5)).reshape(7, dim)
    got = rotate(x, "q4_0")
    np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(x).max())
    np.testing.assert_allclose(rotate(got, "q4_0"), x, atol=1e-5 * np.abs(x).max())
    assert rotate(x, "int8") is x


@pytest.mark.parametrize("dim", DIMS)
def test_values_are_off_by_half_a_step_at_most(dim: int) -> None:
    """int8: half of max / 127, and what the scale's own rounding adds. q4_0: half of |m| / 8, and one where +|m| has no code."""
    x = kv_rows(50, dim)
    for name, steps, half in (("int8", 127, 0.6), ("q4_0", 8, 1.01)):
        rows, group = rotate(x, name), KV_FORMATS[name].group
        got = decode(encode(x, name), dim, name)
        for first in range(0, dim, group):
            part = slice(first, min(first + group, dim))
            step = np.abs(rows[:, part]).max(1, keepdims=True) / steps
            assert (np.abs(got[:, part] - rows[:, part]) <= half * step + 1e-7).all()


@pytest.mark.parametrize("name", ["int8", "q4_0"])
def test_a_scale_that_is_nothing_or_no_number(name: str) -> None:
    """Zeros stay zeros; what float16 cannot scale becomes NaN, in its group alone; a NaN is never lost."""
    x = np.ones((4, 129), np.float32)  # an odd row: not mixed, so that groups keep apart
    x[0], x[1, 3], x[2, 70], x[3, 128] = 0, np.nan, np.inf, 1e9
    got = decode(encode(x, name), 129, name)
    group = KV_FORMATS[name].group
    bad = np.isnan(got)
    for row, column in ((1, 3), (2, 70), (3, 128)):
        assert bad[row].nonzero()[0].tolist() == [c for c in range(129) if c // group == column // group]
    assert (got[0] == 0).all() and not bad[0].any()
    tiny = np.full((1, 32), 1e-9, np.float32)
    assert (decode(encode(tiny, name), 32, name) == 0).all()
