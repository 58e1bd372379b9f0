"""8-bit rows times stacked matrices against the numpy truth, and the same bits in any stack and any company."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference_ops
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.endings import Columns
from kernels_numba.formats import FORMATS
from kernels_numba.gpu import dense_matvec_q8 as module
from kernels_numba.gpu.decode import FLOATS
from kernels_numba.gpu.dense_matvec import Stack
from kernels_numba.gpu.dense_matvec_q8 import dense_matvec_q8
from kernels_numba.gpu.teams import Cut, cut
from kernels_numba.gpu.units import units
from tests.gpu.test_dense_matvec import LIMIT, UNTOUCHED, Made, made, rows_of, same
from tests.gpu.weights import BOTH

FORMATS_HERE = ["Q2_0", "Q4_0", "Q8_0", "Q4_K"] if SIMULATED else [name for name in FORMATS if name not in FLOATS]
SHAPES = [(2, 256, (2, 3))] if SIMULATED else [(1, 256, (3,)), (3, 512, (70, 1, 9)), (8, 2560, (640, 33)), (9, 10_240, (320, 4))]


@pytest.mark.parametrize("planar", BOTH)
@pytest.mark.parametrize("name", FORMATS_HERE)
def test_every_format(name: str, planar: bool) -> None:
    for rows, width, sizes in SHAPES:
        check(rows_of(rows, width), made(name, width, sizes, planar), first=2, spare=3)


@pytest.mark.parametrize(("name", "outs"), [("Q8_0", 4), ("Q2_0", 2)])
def test_teams_that_make_several_outputs(name: str, outs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cut", lambda parts, num_outs, most: Cut(cut(parts, num_outs, most).lanes, outs))
    for width in (320, 2048):  # few lanes a team, and where a unit is 16 values two warps
        check(rows_of(2, width), made(name, width, (3, 2), width == 320), first=1, spare=1)


# width, outputs that are cut in one way, and by how many rows they are multiplied, as in test_dense_matvec
ALONE = [(256, (1, 2, 130, 300), (1, 3)), (2560, (1, 2, 130, 300), (2, 5)), (10_240, (1, 130), (1, 8)), (10_240, (300,), (3,))]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["Q8_0", "Q2_0", "Q4_0", "Q6_K"])
def test_bits_do_not_depend_on_how_the_work_is_cut(name: str) -> None:
    unit = units(name, False, 16).values
    cuts = [cut(10_240 // unit, size, 2 if unit > 32 else 4).outs for size in (1100, 300, 1)]
    assert cuts == ([2, 1, 1] if unit > 32 else [4, 2, 1])
    for width in (256, 2560, 10_240):
        x, big = rows_of(8, width), made(name, width, (1100,), False)
        whole = run(x, big.stack, 0, 0)
        assert same(run(x, made(name, width, (1100,), True).stack, 0, 0), whole)
        for size, rows in ((size, rows) for wide, sizes, some in ALONE if wide == width for size in sizes for rows in some):
            few = Stack(big.stack.table, to_device(np.array([size], np.int32)), size, name, width)
            assert same(run(x[:rows], few, 0, 0), whole[:rows, :size]), (width, size, rows)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="F16 has no 8-bit products"):
        run(rows_of(1, 256), made("F16", 256, (3,), False).stack, 0, 0)
    held = made("Q8_0", 256, (3,), False)
    with pytest.raises(ValueError, match="1 rows of 3 outputs from column 2 on do not fit into 1 rows of 4"):
        dense_matvec_q8(to_device(np.zeros((1, 256), np.int8)), to_device(np.zeros((1, 8), np.float32)), held.stack,
                        Columns(to_device(np.empty((1, 4), np.float32)), 2))  # fmt: skip


def run(x: np.ndarray, stack: Stack, first: int, spare: int) -> np.ndarray:
    codes, scales = reference_ops.quantize_rows(x)
    out = to_device(np.full((len(x), first + stack.num_outs + spare), UNTOUCHED, np.float32))
    dense_matvec_q8(to_device(codes), to_device(scales), stack, Columns(out, first))
    return to_host(out)


def check(x: np.ndarray, held: Made, first: int, spare: int) -> None:
    out, end = run(x, held.stack, first, spare), first + held.stack.num_outs
    assert (out[:, :first] == UNTOUCHED).all() and (out[:, end:] == UNTOUCHED).all()
    rounded = reference_ops.unquantized(*reference_ops.quantize_rows(x))
    error = np.abs(out[:, first:end] - reference_ops.matvec(rounded, held.values))
    assert (error <= (x.shape[1] / 16 + 20) * LIMIT * reference_ops.magnitudes(rounded, held.values) + 1e-30).all(), error.max()
