"""Rows times stacked matrices of every format against the numpy truth, and the same bits in any stack and any company."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from kernels_numba import reference, reference_ops
from kernels_numba.device import SIMULATED, address, to_device, to_host
from kernels_numba.endings import Columns
from kernels_numba.formats import FORMATS
from kernels_numba.gpu import dense_matvec as module
from kernels_numba.gpu.dense_matvec import Stack, dense_matvec
from kernels_numba.gpu.float_products import float_cut
from kernels_numba.gpu.teams import Cut, cut
from kernels_numba.repack import repack
from tests.gpu.weights import BOTH, matrix

FLOAT_FORMATS = ["F16", "Q8_0"] if SIMULATED else list(FORMATS)
# rows of x, width, outputs of each matrix: widths that one lane, a warp and several warps share
SHAPES = (
    [(2, 1024, (3, 1))]
    if SIMULATED
    else [(1, 256, (3,)), (3, 512, (70, 1, 9)), (8, 2560, (640, 33)), (9, 10_240, (320, 4)), (5, 768, (7, 2))]
)
LIMIT = 2.0**-24
UNTOUCHED = np.float32(-77.5)


@pytest.mark.parametrize("planar", BOTH)
@pytest.mark.parametrize("name", FLOAT_FORMATS)
def test_every_format(name: str, planar: bool) -> None:
    for rows, width, sizes in SHAPES:
        if width % FORMATS[name].block_values == 0:
            check(rows_of(rows, width), made(name, width, sizes, planar), first=2, spare=3)


@pytest.mark.parametrize("name", ["Q8_0"] if SIMULATED else ["Q8_0", "F32"])
def test_widths_that_a_team_of_few_lanes_takes(name: str) -> None:
    for width, lanes in ((320, 8), (640, 16)):
        assert cut(width // 8, 5).lanes == lanes
        check(rows_of(1, width), made(name, width, (3, 2), False), first=0, spare=0)


@pytest.mark.parametrize("name", ["F16"] if SIMULATED else ["F32", "F16", "BF16"])
@pytest.mark.parametrize("width", [37] if SIMULATED else [1, 37, 44, 2561])
def test_widths_that_eight_does_not_divide(name: str, width: int) -> None:
    check(rows_of(2, width), made(name, width, (5, 2), False), first=1, spare=1)


def test_bits_do_not_depend_on_the_stack_or_the_rows_beside() -> None:
    width, sizes, count = (256, (2, 1), 2) if SIMULATED else (2560, (640, 600), 3)
    for planar in BOTH:
        x, both = rows_of(count, width), made("Q8_0", width, sizes, planar)
        together = run(x, both.stack, 0, 0)
        for r in range(count):
            assert same(run(x[r : r + 1], both.stack, 0, 0), together[r : r + 1])
        for m, end in enumerate(np.cumsum(sizes)):
            alone = made("Q8_0", width, (sizes[m],), planar, seed=m)
            assert same(run(x, alone.stack, 0, 0), together[:, end - sizes[m] : end])
            few = Stack(alone.stack.table, to_device(np.array([1], np.int32)), 1, "Q8_0", width)
            if not planar:
                assert same(run(x, few, 0, 0), together[:, end - sizes[m] : end - sizes[m] + 1])


@pytest.mark.parametrize(("rows", "outs"), [(1, 4), (3, 2)])
def test_teams_that_make_several_outputs(rows: int, outs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "float_cut", lambda width, num_outs: Cut(cut(width // 8, num_outs).lanes, outs))
    for width in (320, 1024):  # four teams a warp, two warps a team
        check(rows_of(rows, width), made("Q8_0", width, (3, 4), width == 320), first=1, spare=1)


# width, outputs that are cut in one way, and by how many rows they are multiplied: each number of rows and each cut once, as a kernel
# takes a second to compile
ALONE = [
    (256, (1, 2, 130), (1, 3, 8)),
    (2560, (1, 2, 130), (1, 7)),
    (2560, (300,), (2, 5)),
    (10_240, (1, 130), (1, 6)),
    (10_240, (300,), (4,)),
]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["F32", "BF16", "Q8_0", "Q2_0", "Q6_K"])
def test_bits_do_not_depend_on_how_the_work_is_cut(name: str) -> None:
    for width, (most, few) in {256: (2, {1}), 2560: (4, {1, 2}), 10_240: (4, {1, 2})}.items():
        x, big = rows_of(8, width), made(name, width, (1100,), False)
        whole, seen = run(x, big.stack, 0, 0), set()
        assert float_cut(width, 1100).outs == most
        for size, rows in ((size, rows) for wide, sizes, some in ALONE if wide == width for size in sizes for rows in some):
            stack = Stack(big.stack.table, to_device(np.array([size], np.int32)), size, name, width)
            assert same(run(x[:rows], stack, 0, 0), whole[:rows, :size]), (width, size, rows)
            seen.add(float_cut(width, size).outs)
        assert seen == few


@pytest.mark.gpu
def test_a_matrix_of_more_than_two_gib() -> None:
    """Only its last rows count: offsets of 33 bits."""
    import torch

    rows, width = 70_000, 8192
    weights = torch.zeros(rows, width, device="cuda")
    weights[-3:] = torch.from_numpy(rows_of(3, width)).cuda()
    table, ends = torch.tensor([weights.data_ptr()], device="cuda"), torch.tensor([rows], dtype=torch.int32, device="cuda")
    x, out = torch.from_numpy(rows_of(1, width)).cuda(), torch.empty(1, rows, device="cuda")
    torch.cuda.synchronize()
    dense_matvec(x, Stack(table, ends, rows, "F32", width), Columns(out))
    torch.cuda.synchronize()
    assert (out[0, :-3] == 0).all()
    assert torch.allclose(out[0, -3:].double(), (weights[-3:].double() @ x[0].double()), rtol=1e-4)


def test_a_nan_in_a_row_shows_there_alone() -> None:
    x = rows_of(2, 256)
    x[1, 5] = np.nan
    out = run(x, made("Q8_0", 256, (3,), False).stack, 0, 0)
    assert np.isfinite(out[0]).all() and np.isnan(out[1]).all()


def test_no_rows_launch_nothing() -> None:
    assert run(rows_of(0, 256), made("Q8_0", 256, (3,), False).stack, 0, 0).shape == (0, 3)


def test_wrong_arguments_are_refused() -> None:
    held = made("Q8_0", 256, (3,), False)
    with pytest.raises(ValueError, match="32 values a block, which does not divide a row of 40"):
        Stack(held.stack.table, held.stack.ends, 3, "Q8_0", 40)
    with pytest.raises(ValueError, match="1 rows of 3 outputs from column 2 on do not fit into 1 rows of 4"):
        dense_matvec(to_device(rows_of(1, 256)), held.stack, Columns(to_device(np.empty((1, 4), np.float32)), 2))
    with pytest.raises(ValueError, match="x is float64"):
        run(rows_of(1, 256).astype(np.float64), held.stack, 0, 0)


@dataclass(frozen=True)
class Made:
    device: list[Any]  # kept: the table holds their addresses
    stack: Stack
    values: np.ndarray


def made(name: str, width: int, sizes: tuple[int, ...], planar: bool, seed: int = 0) -> Made:
    """Random matrices; the m-th is that of seed + m, whatever its neighbours are."""
    plain = [matrix(name, size, width, seed + m) for m, size in enumerate(sizes)]
    device = [to_device(repack(data, name) if planar else data) for data in plain]
    table = to_device(np.array([address("matrix", data, "uint8", (-1,)) for data in device], np.int64))
    stack = Stack(table, to_device(np.cumsum(sizes).astype(np.int32)), sum(sizes), name, width, planar)
    return Made(device, stack, np.concatenate([reference.dequantize(data, name) for data in plain]).reshape(-1, width))


def rows_of(count: int, width: int) -> np.ndarray:
    return np.random.default_rng(width).standard_normal((count, width)).astype(np.float32)


def run(x: np.ndarray, stack: Stack, first: int, spare: int) -> np.ndarray:
    out = to_device(np.full((len(x), first + stack.num_outs + spare), UNTOUCHED, np.float32))
    dense_matvec(to_device(x), stack, Columns(out, first))
    return to_host(out)


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.shape == right.shape and bool((left.view(np.uint32) == np.ascontiguousarray(right).view(np.uint32)).all())


def check(x: np.ndarray, held: Made, first: int, spare: int) -> None:
    out, end = run(x, held.stack, first, spare), first + held.stack.num_outs
    assert (out[:, :first] == UNTOUCHED).all() and (out[:, end:] == UNTOUCHED).all()
    error = np.abs(out[:, first:end] - reference_ops.matvec(x, held.values))
    assert (error <= (x.shape[1] / 32 + 20) * LIMIT * reference_ops.magnitudes(x, held.values) + 1e-30).all(), error.max()
