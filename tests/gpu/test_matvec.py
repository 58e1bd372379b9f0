"""A few rows times matrices of every format, by an address table: against the numpy truth, and the same bits in any company."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference_ops
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.formats import FORMATS
from kernels_numba.gpu import matvec as module
from kernels_numba.gpu.decode import FLOATS
from kernels_numba.gpu.jobs import Jobs
from kernels_numba.gpu.matvec import matvec
from kernels_numba.gpu.matvec_q8 import matvec_q8
from kernels_numba.gpu.teams import Cut, cut
from tests.gpu.weights import BOTH, Blobs, blobs

QUANTIZED = [name for name in FORMATS if name not in FLOATS]
# matrix count, outputs, inputs: inputs that lanes divide and not, outputs that tiles divide and not
# the simulator takes seconds for a block: there the formats that differ in more than their decoding, which test_dequantize has
FLOAT_FORMATS = ["F16", "Q2_0"] if SIMULATED else list(FORMATS)
INTEGER_FORMATS = ["Q2_0", "Q4_0", "Q8_0", "Q4_K"] if SIMULATED else QUANTIZED
SHAPES = [(1, 3, 256)] if SIMULATED else [(1, 3, 256), (3, 70, 768), (2, 640, 2560)]
LIMIT = 2.0**-24
UNTOUCHED = np.float32(-77.5)


@pytest.mark.parametrize("planar", BOTH)
@pytest.mark.parametrize("name", FLOAT_FORMATS)
def test_float_rows(name: str, planar: bool) -> None:
    for count, num_outs, width in SHAPES:
        x, made = rows_of(3, width), blobs(name, count, num_outs, width, planar, offset=32)
        jobs = table_of(count, 2, 3, seed=1)
        out = run(x, made, jobs, name, num_outs, planar, 32)
        check(out, jobs, [x] * count, made, width / 32 + 20)


@pytest.mark.parametrize("planar", BOTH)
@pytest.mark.parametrize("name", INTEGER_FORMATS)
def test_8_bit_rows(name: str, planar: bool) -> None:
    for count, num_outs, width in SHAPES:
        codes, scales = reference_ops.quantize_rows(rows_of(3, width))
        made, jobs = blobs(name, count, num_outs, width, planar, offset=16), table_of(count, 2, 3, seed=2)
        out = run_q8(codes, scales, made, jobs, name, num_outs, planar, 16)
        check(out, jobs, [reference_ops.unquantized(codes, scales)] * count, made, width / 16 + 20)


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("width", [1, 37, 40])
def test_widths_that_eight_does_not_divide(name: str, width: int) -> None:
    x, made, jobs = rows_of(2, width), blobs(name, 1, 5, width, False), np.array([[0, 1]], np.int32)
    check(run(x, made, jobs, name, 5, False, 0), jobs, [x], made, width / 32 + 20)


@pytest.mark.parametrize(("outs", "planar"), [(4, True), (2, False)])
def test_teams_that_make_several_outputs(outs: int, planar: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "float_cut", lambda width, num_outs: Cut(cut(width // 8, num_outs).lanes, outs))
    for width in (320, 1024):  # four teams a warp, two warps a team
        x, held, jobs = rows_of(3, width), blobs("Q2_0", 2, 5, width, planar, offset=16), table_of(2, 3, 3, seed=4)
        check(run(x, held, jobs, "Q2_0", 5, planar, 16), jobs, [x] * 2, held, width / 32 + 20)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["Q2_0", "Q8_0", "F16"])
def test_bits_do_not_depend_on_the_jobs_beside(name: str) -> None:
    for width in (640, 2560):
        x, held, jobs = rows_of(2, width), blobs(name, 10, 640, width, False), np.tile(np.array([[0, 1]], np.int32), (10, 1))
        together = run(x, held, jobs, name, 640, False, 0)
        for j in (0, 7):  # one job alone is cut into smaller tiles
            alone = Blobs(held.device, to_device(to_host(held.table)[j : j + 1].copy()), held.values)
            assert (run(x, alone, jobs[:1], name, 640, False, 0).view(np.uint32) == together[j : j + 1].view(np.uint32)).all()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["Q2_0", "Q8_0", "Q6_K"])
@pytest.mark.parametrize("offset", [2, 4, 8])
def test_any_even_offset(name: str, offset: int) -> None:
    x, jobs = rows_of(2, 256), np.array([[1, 0]], np.int32)
    for planar in BOTH:
        made = blobs(name, 1, 4, 256, planar, offset=offset)
        check(run(x, made, jobs, name, 4, planar, offset), jobs, [x], made, 30)
        codes, scales = reference_ops.quantize_rows(x)
        got = run_q8(codes, scales, made, jobs, name, 4, planar, offset)
        check(got, jobs, [reference_ops.unquantized(codes, scales)], made, 40)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["Q2_0", "Q8_0", "Q4_0", "IQ3_S"])
def test_a_rows_bits_do_not_depend_on_the_rows_beside_it(name: str) -> None:
    num_outs, width = 70, 2560
    x, made = rows_of(9, width), blobs(name, 1, num_outs, width, True)
    codes, scales = reference_ops.quantize_rows(x)
    for rows in ([4], [4, 0], [1, 4, 2], [8, 7, 6, 5, 4], [0, 1, 2, 3, 4, 5, 6, 7], [8, 7, 6, 5, 4, 3, 2, 1, 0]):
        jobs, place = np.array([rows], np.int32), rows.index(4) if 4 in rows else 4
        for got, first in (
            (run(x, made, jobs, name, num_outs, True, 0), run(x, made, np.array([[4]], np.int32), name, num_outs, True, 0)),
            (run_q8(codes, scales, made, jobs, name, num_outs, True, 0),
             run_q8(codes, scales, made, np.array([[4]], np.int32), name, num_outs, True, 0)),
        ):  # fmt: skip
            assert (got[0, place].view(np.uint32) == first[0, 0].view(np.uint32)).all(), rows
    assert (run(x, made, np.array([[4]], np.int32), name, num_outs, True, 0)
            == run(x, blobs(name, 1, num_outs, width, False), np.array([[4]], np.int32), name, num_outs, False, 0)).all()  # fmt: skip


def test_a_nan_in_a_row_shows() -> None:
    x = rows_of(2, 256)
    x[1, 5] = np.nan
    codes, scales = reference_ops.quantize_rows(x)
    made, jobs = blobs("Q2_0", 1, 3, 256, True), np.array([[0, 1]], np.int32)
    for out in (run(x, made, jobs, "Q2_0", 3, True, 0), run_q8(codes, scales, made, jobs, "Q2_0", 3, True, 0)):
        assert np.isfinite(out[0, 0]).all()
        assert np.isnan(out[0, 1]).all()


@pytest.mark.parametrize(("name", "width"), [("Q2_0", 256), ("F16", 37)])
def test_a_job_without_a_matrix_leaves_its_outputs(name: str, width: int) -> None:
    x, made, jobs = rows_of(2, width), blobs(name, 3, 5, width, False, offset=16), np.array([[0], [1], [1]], np.int32)
    table = to_host(made.table).copy()
    table[[0, 2]] = 0
    some = Blobs(made.device, to_device(table), made.values)
    outs = [(run(x, some, jobs, name, 5, False, 16), run(x, made, jobs, name, 5, False, 16))]
    if name == "Q2_0":
        codes, scales = reference_ops.quantize_rows(x)
        outs.append((run_q8(codes, scales, some, jobs, name, 5, False, 16), run_q8(codes, scales, made, jobs, name, 5, False, 16)))
    for out, whole in outs:
        assert (out[[0, 2]] == UNTOUCHED).all()
        assert (out[1].view(np.uint32) == whole[1].view(np.uint32)).all() and (out[1] != UNTOUCHED).all()


def test_nothing_to_do_launches_nothing() -> None:
    made, x = blobs("Q2_0", 1, 3, 256, True), rows_of(1, 256)
    assert run(x, made, np.empty((1, 0), np.int32), "Q2_0", 3, True, 0).shape == (1, 0, 3)
    empty = Blobs([], to_device(np.empty(0, np.int64)), [])
    assert run(x, empty, np.empty((0, 2), np.int32), "Q2_0", 3, True, 0).shape == (0, 2, 3)


def test_wrong_arguments_are_refused() -> None:
    made, x, jobs = blobs("Q2_0", 1, 3, 256, True), rows_of(1, 256), np.array([[0]], np.int32)
    with pytest.raises(ValueError, match="64 values a block, which does not divide a row of 40"):
        run(rows_of(1, 40), made, jobs, "Q2_0", 3, True, 0)
    with pytest.raises(ValueError, match="at byte 3 of its blob"):
        run(x, made, jobs, "Q2_0", 3, True, 3)
    with pytest.raises(ValueError, match="F16 has no 8-bit products"):
        run_q8(*reference_ops.quantize_rows(x), made, jobs, "F16", 3, True, 0)
    with pytest.raises(ValueError, match="x is float64"):
        run(x.astype(np.float64), made, jobs, "Q2_0", 3, True, 0)
    with pytest.raises(ValueError, match="at most 49152 bytes"):
        run_q8(np.zeros((1, 64 * 1024), np.int8), np.zeros((1, 2048), np.float32), made, jobs, "Q2_0", 3, True, 0)


@pytest.mark.gpu
def test_wide_rows_go_in_passes_of_fewer() -> None:
    codes, scales = reference_ops.quantize_rows(rows_of(8, 10_240))
    made, jobs = blobs("Q8_0", 1, 33, 10_240, True), np.arange(8, dtype=np.int32).reshape(1, 8)
    out = run_q8(codes, scales, made, jobs, "Q8_0", 33, True, 0)
    check(out, jobs, [reference_ops.unquantized(codes, scales)], made, 10_240 / 16 + 20)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["Q2_0", "Q8_0", "IQ2_XS"])
def test_reads_page_locked_host_memory_in_place(name: str) -> None:
    from kernels_numba.device import cuda

    made, x, jobs = blobs(name, 2, 70, 768, True), rows_of(2, 768), np.array([[0, 1], [1, -1]], np.int32)
    host = [cuda.pinned_array(blob.size, np.uint8) for blob in made.device]
    for pinned, blob in zip(host, made.device, strict=True):
        pinned[:] = to_host(blob)
    here = Blobs(host, to_device(np.array([pinned.ctypes.data for pinned in host], np.int64)), made.values)
    assert (run(x, here, jobs, name, 70, True, 0) == run(x, made, jobs, name, 70, True, 0)).all()
    codes, scales = reference_ops.quantize_rows(x)
    assert (run_q8(codes, scales, here, jobs, name, 70, True, 0) == run_q8(codes, scales, made, jobs, name, 70, True, 0)).all()


def rows_of(count: int, width: int) -> np.ndarray:
    return np.random.default_rng(width).standard_normal((count, width)).astype(np.float32)


def table_of(count: int, slots: int, rows: int, seed: int) -> np.ndarray:
    """Random rows for each job's slots, the last slot of the last job empty."""
    jobs = np.random.default_rng(seed).integers(0, rows, (count, slots), dtype=np.int32)
    jobs[-1, -1] = -1
    return jobs


def run(x: np.ndarray, made: Blobs, jobs: np.ndarray, name: str, num_outs: int, planar: bool, offset: int) -> np.ndarray:
    out = to_device(np.full((*jobs.shape, num_outs), UNTOUCHED, np.float32))
    matvec(to_device(x), Jobs(made.table, to_device(jobs), offset), name, num_outs, out, planar)
    return to_host(out)


def run_q8(
    codes: np.ndarray, scales: np.ndarray, made: Blobs, jobs: np.ndarray, name: str, num_outs: int, planar: bool, offset: int
) -> np.ndarray:
    out = to_device(np.full((*jobs.shape, num_outs), UNTOUCHED, np.float32))
    matvec_q8(to_device(codes), to_device(scales), Jobs(made.table, to_device(jobs), offset), name, num_outs, out, planar)
    return to_host(out)


def check(out: np.ndarray, jobs: np.ndarray, x: list[np.ndarray], made: Blobs, roundings: float) -> None:
    for j, s in np.ndindex(*jobs.shape):
        if jobs[j, s] < 0:
            assert (out[j, s] == UNTOUCHED).all()
            continue
        row, weights = x[j][jobs[j, s] : jobs[j, s] + 1], made.values[j]
        error = np.abs(out[j, s] - reference_ops.matvec(row, weights)[0])
        assert (error <= roundings * LIMIT * reference_ops.magnitudes(row, weights)[0] + 1e-30).all(), (j, s, error.max())
