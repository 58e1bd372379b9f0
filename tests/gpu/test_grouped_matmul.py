"""Sorted rows times their experts: against the numpy truth, with experts that are empty, lonely or hold everything."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference_ops
from kernels_numba.device import SIMULATED, address, to_device, to_host
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.grouped_matmul import COMPUTE, grouped_down, grouped_gate_up
from kernels_numba.gpu.groups import TILE_ROWS, Groups, Part, tiles_of
from kernels_numba.reference_ops import GROUP, from_bits, magnitudes, matvec, quantize_rows, rounded, rounded_weights, to_bits
from tests.gpu.weights import Blobs, blobs

UNTOUCHED = 3.0
COUNTS = [0, 3, 0, 66, 1] if not SIMULATED else [0, 2]
FLOATS = 2.0**-24


@pytest.mark.parametrize("planar", [True, False])
@pytest.mark.parametrize("compute", list(COMPUTE))
@pytest.mark.parametrize("name", ["Q2_0"] if SIMULATED else list(FORMATS))
def test_down(name: str, compute: str, planar: bool) -> None:
    if SIMULATED and not planar:
        pytest.skip("one order is enough in the simulator")
    for num_outs, width in [(6, 128)] if SIMULATED else [(130, 256), (6, 768)]:
        x, made = rows_of(sum(COUNTS), width), blobs(name, len(COUNTS), num_outs, width, planar, offset=32)
        check_down(x, COUNTS, made, run_down(x, COUNTS, made, name, num_outs, compute, planar, 32), compute)


@pytest.mark.gpu
@pytest.mark.parametrize("planar", [True, False])
@pytest.mark.parametrize("compute", list(COMPUTE))
@pytest.mark.parametrize("names", [("Q2_0", "Q2_0"), ("IQ2_XS", "IQ4_NL"), ("F16", "Q8_0"), ("Q6_K", "Q4_K")])
def test_gate_up(names: tuple[str, str], compute: str, planar: bool) -> None:
    num_outs, width = 70, 768
    x, rows = np.float32(0.05) * rows_of(sum(COUNTS), width), np.random.default_rng(5).permutation(sum(COUNTS)).astype(np.int32)
    gates = blobs(names[0], len(COUNTS), num_outs, width, planar, seed=1)
    ups = blobs(names[1], len(COUNTS), num_outs, width, planar, seed=2)
    both, offset = joined(gates, ups)
    out = run_gate_up(x, COUNTS, both, names, num_outs, compute, planar, offset, rows)
    for group, part in groups_of(COUNTS):
        wanted = reference_ops.gate_up(x[rows[part]], gates.values[group], ups.values[group], compute)
        gate, up = (rounded_weights(v, compute) for v in (gates.values[group], ups.values[group]))
        operand = rounded(x[rows[part]], compute)
        scale = (magnitudes(operand, gate) + 1) * (magnitudes(operand, up) + 1)
        unit = {"f32": width / 2 * FLOATS, "bf16": 2.0**-9, "f16": 2.0**-12, "q8": width / 2 * FLOATS}[compute]
        limit = (width * FLOATS + 1e-6) * scale + unit * np.abs(wanted) + 1e-7
        if compute == "q8":  # half a step of the result's own code
            limit += 0.501 * np.repeat(quantize_rows(wanted.astype(np.float32))[1], GROUP, axis=1)[:, :num_outs]
        assert (np.abs(out[part] - wanted) <= limit).all()


@pytest.mark.gpu
def test_q8_results_are_operands_of_down() -> None:
    """Rounded again, nothing changes but a last bit."""
    gates, ups = (blobs("Q2_0", len(COUNTS), 64, 256, True, seed=seed) for seed in (1, 2))
    both, offset = joined(gates, ups)
    x, rows = rows_of(sum(COUNTS), 256), np.arange(sum(COUNTS), dtype=np.int32)
    out = run_gate_up(x, COUNTS, both, ("Q2_0", "Q2_0"), 64, "q8", True, offset, rows)
    assert len(np.unique(np.round(out[0, :32] / quantize_rows(out)[1][0, 0]))) > 8
    np.testing.assert_allclose(rounded(out, "q8"), out, rtol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("width", [8, 24, 40, 64, 72, 320])
@pytest.mark.parametrize("compute", list(COMPUTE))
def test_widths_that_the_step_does_not_divide(width: int, compute: str) -> None:
    x, made = rows_of(sum(COUNTS), width), blobs("F16", len(COUNTS), 34, width, False)
    check_down(x, COUNTS, made, run_down(x, COUNTS, made, "F16", 34, compute, False, 0), compute)
    if width % 32 == 0:
        made = blobs("Q8_0", len(COUNTS), 34, width, True)
        check_down(x, COUNTS, made, run_down(x, COUNTS, made, "Q8_0", 34, compute, True, 0), compute)


@pytest.mark.gpu
@pytest.mark.parametrize("experts", [1, 2, 65, 257, 513, 1025])
def test_any_number_of_experts(experts: int) -> None:
    counts = np.random.default_rng(experts).integers(0, 4, experts).tolist()
    x, made = rows_of(sum(counts) + 1, 64), blobs("Q2_0", experts, 8, 64, True)
    check_down(x[:-1], counts, made, run_down(x[:-1], counts, made, "Q2_0", 8, "bf16", True, 0), "bf16")


@pytest.mark.gpu
@pytest.mark.parametrize("compute", list(COMPUTE))
def test_seventy_thousand_rows_on_one_expert(compute: str) -> None:
    counts = [0, 70_000, 0]
    x, made = rows_of(70_000, 128), blobs("Q2_0", 3, 132, 128, True)
    check_down(x, counts, made, run_down(x, counts, made, "Q2_0", 132, compute, True, 0), compute)


@pytest.mark.gpu
@pytest.mark.parametrize("compute", list(COMPUTE))
def test_a_rows_bits_do_not_depend_on_the_rows_beside_it(compute: str) -> None:
    width, name, num_outs = 2560, "Q2_0", 640
    x, made = rows_of(200, width), blobs(name, 2, num_outs, width, True)
    alone = run_down(x[77:78], [0, 1], made, name, num_outs, compute, True, 0)[0]
    for counts, place in (([0, 200], 77), ([70, 130], 77), ([10, 190], 77)):
        got = run_down(x, counts, made, name, num_outs, compute, True, 0)
        assert (got[place].view(np.uint32) == alone.view(np.uint32)).all(), counts
    for start in (76, 60, 14):
        got = run_down(x[start:], [0, 200 - start], made, name, num_outs, compute, True, 0)
        assert (got[77 - start].view(np.uint32) == alone.view(np.uint32)).all(), start


def test_no_rows_launch_nothing() -> None:
    made = blobs("Q2_0", 2, 6, 64, True)
    assert tiles_of(np.zeros(2, np.int64)).shape == (0, 3)
    assert run_down(rows_of(0, 64), [0, 0], made, "Q2_0", 6, "bf16", True, 0).shape == (0, 6)


def test_wrong_arguments_are_refused() -> None:
    made = blobs("Q2_0", 1, 6, 64, True)
    with pytest.raises(ValueError, match="64 inputs and 5 outputs: wanted a multiple of 8 and of 2"):
        run_down(rows_of(1, 64), [1], made, "Q2_0", 5, "bf16", True, 0)
    with pytest.raises(ValueError, match=r"x is float32 .* wanted bits16"):
        out, groups = to_device(np.zeros((1, 6), np.float32)), Groups(made.table, to_device(tiles_of(np.array([1]))))
        grouped_down(to_device(rows_of(1, 64)), groups, Part("Q2_0", 0), 6, out, "bf16", True)


def rows_of(count: int, width: int) -> np.ndarray:
    return np.random.default_rng(width).standard_normal((count, width)).astype(np.float32)


def operand_of(x: np.ndarray, compute: str) -> np.ndarray:
    return rounded(x, compute) if COMPUTE[compute] == "float32" else to_bits(x, compute)


def run_down(
    x: np.ndarray, counts: list[int], made: Blobs, name: str, num_outs: int, compute: str, planar: bool, offset: int
) -> np.ndarray:
    groups = Groups(made.table, to_device(tiles_of(np.array(counts))))
    out = to_device(np.full((len(x), num_outs), UNTOUCHED, np.float32))
    grouped_down(to_device(operand_of(x, compute)), groups, Part(name, offset), num_outs, out, compute, planar)
    return to_host(out)


def run_gate_up(
    x: np.ndarray, counts: list[int], made: Blobs, names: tuple[str, str], num_outs: int, compute: str, planar: bool,
    offset: int, rows: np.ndarray
) -> np.ndarray:  # fmt: skip
    groups = Groups(made.table, to_device(tiles_of(np.array(counts))), to_device(rows))
    shape = len(rows), num_outs
    wide = COMPUTE[compute] == "float32"
    out = to_device(np.full(shape, UNTOUCHED, np.float32) if wide else np.full(shape, 0x7FFF, np.uint16))
    grouped_gate_up(to_device(operand_of(x, compute)), groups, Part(names[0], 0), Part(names[1], offset), num_outs, out, compute, planar)
    return to_host(out) if wide else from_bits(to_host(out), compute)


def groups_of(counts: list[int]) -> list[tuple[int, slice]]:
    ends = np.cumsum(counts)
    return [(group, slice(int(end) - count, int(end))) for group, (count, end) in enumerate(zip(counts, ends, strict=True)) if count]


def check_down(x: np.ndarray, counts: list[int], made: Blobs, out: np.ndarray, compute: str) -> None:
    for group, part in groups_of(counts):
        operand, weights = rounded(x[part], compute), rounded_weights(made.values[group], compute)
        error = np.abs(out[part] - matvec(operand, weights))
        assert (error <= (x.shape[1] / 2 + 20) * FLOATS * magnitudes(operand, weights) + 1e-30).all(), (group, error.max())


def joined(gates: Blobs, ups: Blobs) -> tuple[Blobs, int]:
    """Blobs of gate | up, and where up starts (a multiple of 16)."""
    pairs = zip(gates.device, ups.device, strict=True)
    made = [to_device(np.concatenate([to_host(g), np.zeros(-g.size % 16, np.uint8), to_host(u)])) for g, u in pairs]
    table = to_device(np.array([address("blob", blob, "uint8", (-1,)) for blob in made], np.int64))
    return Blobs(made, table, gates.values), int(gates.device[0].size + -gates.device[0].size % 16)


@pytest.mark.parametrize(
    ("counts", "tiles"),
    [
        ([], []),
        ([0, 0], []),
        ([1], [[0, 0, 1]]),
        ([TILE_ROWS], [[0, 0, TILE_ROWS]]),
        ([0, TILE_ROWS + 1, 0, 2], [[1, 0, TILE_ROWS], [1, TILE_ROWS, 1], [3, TILE_ROWS + 1, 2]]),
    ],
)
def test_tiles(counts: list[int], tiles: list[list[int]]) -> None:
    assert tiles_of(np.array(counts, np.int64)).tolist() == tiles


def test_tiles_of_many_rows() -> None:
    tiles = tiles_of(np.array([70_000, 0, 5], np.uint16 if 70_000 < 2**16 else np.uint32))
    assert tiles[:, 2].sum() == 70_005
    assert (tiles[1:, 1] == np.cumsum(tiles[:-1, 2])).all()
    with pytest.raises(ValueError, match="none negative"):
        tiles_of(np.array([3, -1]))
