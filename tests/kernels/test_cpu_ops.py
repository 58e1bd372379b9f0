"""The CPU ops against the numpy truth: to the bit where it promises that, else within their stated roundings."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference, reference_ops
from kernels_numba.cpu import grouped_matmul, matvec, moe
from kernels_numba.cpu.quantize_rows import quantize_rows
from kernels_numba.cpu.route_topk import route_topk
from kernels_numba.formats import FORMATS
from tests.gpu.weights import matrix
from tests.kernels.rows import edge_rows
from tests.kernels.scores import EXPERTS, score_rows

ROUNDING = 2.0**-24


@pytest.mark.parametrize("experts", EXPERTS)
def test_route_topk(experts: int) -> None:
    scores = score_rows(experts, seed=experts)
    for count in range(1, min(experts, 16) + 1):
        ids, values, nans = np.empty((14, count), np.int32), np.empty((14, count), np.float32), np.empty(14, np.int32)
        route_topk(scores, ids, values, nans)
        wanted = reference_ops.route_topk(scores, count)
        assert (ids == wanted[0]).all()
        assert np.array_equal(values, wanted[1], equal_nan=True)
        assert (nans == wanted[2]).all()
        assert all(len(set(row)) == count for row in ids.tolist())


@pytest.mark.parametrize("count", [0, 9])
def test_route_topk_refuses_a_k_out_of_range(count: int) -> None:
    for op in (route_topk, lambda scores, ids, *_: reference_ops.route_topk(scores, ids.shape[1])):
        with pytest.raises(ValueError, match=f"{count} of 8 experts: wanted 1 to 8"):
            op(np.zeros((1, 8), np.float32), np.empty((1, count), np.int32), np.empty((1, count), np.float32), np.empty(1, np.int32))


def test_route_topk_by_hand() -> None:
    ids, values, nans = reference_ops.route_topk(np.array([[1, 3, np.nan, 3, -np.inf]], np.float32), 5)
    assert ids.tolist() == [[1, 3, 0, 4, 2]]
    assert values[0, :4].tolist() == [3, 3, 1, -np.inf]
    assert nans.tolist() == [1]


@pytest.mark.parametrize("shape", [(0, 64), (1, 1), (3, 40), (5, 2560), (70_000, 32)])
def test_quantize_rows(shape: tuple[int, int]) -> None:
    check_quantized(np.random.default_rng(shape[1]).standard_normal(shape).astype(np.float32))


def test_quantize_rows_edges() -> None:
    check_quantized(edge_rows())
    codes, scales = reference_ops.quantize_rows(edge_rows())
    assert codes[1, :5].tolist() == [127, 0, 2, 2, 0]  # ties to even
    assert np.isnan(scales[4, 0]) and not codes[4, :32].any() and scales[4, 1] > 0
    assert np.isinf(scales[5, 1]) and not codes[5, 32:].any()


def test_rounded_rows_are_the_codes_values() -> None:
    x = np.random.default_rng(0).standard_normal((5, 72)).astype(np.float32)
    codes, scales = reference_ops.quantize_rows(x)
    np.testing.assert_allclose(reference_ops.round_rows(x), reference_ops.unquantized(codes, scales), rtol=2 * ROUNDING)
    assert np.isnan(reference_ops.round_rows(edge_rows())[4, :32]).all()


def check_quantized(x: np.ndarray) -> None:
    codes, scales = reference_ops.quantize_rows(x)
    got_codes, got_scales = np.full_like(codes, 99), np.full_like(scales, -1)
    quantize_rows(x, got_codes, got_scales)
    assert (got_codes == codes).all()
    assert np.array_equal(got_scales, scales, equal_nan=True)


@pytest.mark.parametrize("name", list(FORMATS))
def test_matvec(name: str) -> None:
    x, rows = rows_of(3, 512), np.array([[2, 0], [1, -1]], np.int32)
    data = [matrix(name, 37, 512, seed) for seed in (1, 2)]
    codes, scales = reference_ops.quantize_rows(x)
    plain, integer = np.full((2, 2, 37), -7, np.float32), np.full((2, 2, 37), -7, np.float32)
    matvec.matvec(x, data, rows, name, 37, plain)
    matvec.matvec_q8(codes, scales, data, rows, name, 37, integer)
    for (j, s), row in np.ndenumerate(rows):
        weights = reference.dequantize(data[j], name).reshape(37, 512)
        for out, operand in ((plain, x), (integer, reference_ops.unquantized(codes, scales))):
            if row < 0:
                assert (out[j, s] == -7).all()
            else:
                limit = (512 / 8 + 12) * ROUNDING * reference_ops.magnitudes(operand[row : row + 1], weights)[0]
                assert (np.abs(out[j, s] - reference_ops.matvec(operand[row : row + 1], weights)[0]) <= limit).all()


@pytest.mark.parametrize("compute", ["f32", "bf16", "f16", "q8"])
@pytest.mark.parametrize("names", [("Q2_0", "Q2_0", "Q4_0"), ("IQ2_XS", "Q8_0", "Q6_K")])
def test_grouped_matmul(names: tuple[str, str, str], compute: str) -> None:
    counts, hidden, width = np.array([0, 3, 1, 0, 40]), 256, 256
    x = rows_of(int(counts.sum()), hidden)
    gates, ups, downs = ([(matrix(name, width, hidden, 10 * part + g), name) for g in range(5)] for part, name in enumerate(names))
    middle, out = np.empty((len(x), width), np.float32), np.empty((len(x), hidden), np.float32)
    grouped_matmul.grouped_gate_up(x, counts, gates, ups, middle, compute)
    grouped_matmul.grouped_down(middle, counts, downs, out, compute)
    start = 0
    for count, gate, up, down in zip(counts, gates, ups, downs, strict=True):
        part, start = slice(start, start + count), start + count
        wide = [reference.dequantize(*m).reshape(256, 256) for m in (gate, up, down)]
        wanted = reference_ops.gate_up(x[part], wide[0], wide[1], compute)
        step = {"f32": 0, "bf16": 2.0**-8, "f16": 2.0**-11, "q8": 0}[compute] * np.abs(wanted)
        if compute == "q8":  # half a step of the result's own code
            step = 0.501 * np.repeat(reference_ops.quantize_rows(wanted.astype(np.float32))[1], 32, axis=1)
        gate_up_sums = [reference_ops.magnitudes(x[part], weights) + 1 for weights in wide[:2]]
        assert (np.abs(middle[part] - wanted) <= 1e-5 * gate_up_sums[0] * gate_up_sums[1] + step).all()
        operand, weights = reference_ops.rounded(middle[part], compute), reference_ops.rounded_weights(wide[2], compute)
        limit = 50 * ROUNDING * reference_ops.magnitudes(operand, weights)
        assert (np.abs(out[part] - reference_ops.matvec(operand, weights)) <= limit).all()


def test_grouped_matmul_row_bits_do_not_depend_on_the_rows_beside_it() -> None:
    x, down = rows_of(50, 256), [(matrix("Q2_0", 96, 256, 1), "Q2_0")]
    alone, whole = np.empty((1, 96), np.float32), np.empty((50, 96), np.float32)
    grouped_matmul.grouped_down(x[17:18], np.array([1]), down, alone, "bf16")
    grouped_matmul.grouped_down(x, np.array([50]), down, whole, "bf16")
    assert (whole[17] == alone[0]).all()


def test_scatter_add_is_the_same_bits_in_any_cut() -> None:
    rng = np.random.default_rng(0)
    places = rng.permutation(120 * 5).reshape(120, 5).astype(np.int32)
    places[3] = -1
    y, weights, acc = (rng.standard_normal(size).astype(np.float32) for size in ((600, 33), (120, 5), (120, 33)))
    wanted, whole, cut = acc.copy(), acc.copy(), acc.copy()
    reference_ops.moe_scatter_add(y, weights, places, wanted)
    moe.moe_scatter_add(y, weights, places, whole)
    for kept in (np.arange(5) < 2, np.arange(5) >= 2):
        moe.moe_scatter_add(y, weights, np.where(kept, places, -1).astype(np.int32), cut)
    assert (whole.view(np.uint32) == wanted.view(np.uint32)).all()
    assert (cut.view(np.uint32) == wanted.view(np.uint32)).all()
    assert (whole[3] == acc[3]).all()


def test_shared_init_and_silu() -> None:
    rng = np.random.default_rng(1)
    shared, gate = rng.standard_normal((9, 33)).astype(np.float32), (20 * rng.standard_normal(9)).astype(np.float32)
    acc = np.empty((9, 33), np.float32)
    gate[:3] = [np.inf, -100, 100]
    moe.moe_shared_init(shared, gate, acc)
    assert np.allclose(acc, reference_ops.moe_shared_init(shared, gate), rtol=1e-6, atol=1e-37)
    x = np.array([[-200, -90, -1, -0.0, 0, 1e-20, 1, 90, 200, np.nan]], np.float32)
    out = np.empty_like(x)
    moe.silu_multiply(x, np.full_like(x, 2), out)
    assert np.allclose(out, reference_ops.silu(x) * 2, rtol=1e-6, atol=1e-35, equal_nan=True)


def test_16_bit_rounding_against_numpy_and_by_hand() -> None:
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, np.inf, -0.0, 3.4e38, 1e-45], np.float32)
    assert reference_ops.to_bits(values, "bf16").tolist() == [0x3F80, 0x3F80, 0x3F82, 0x7F80, 0x8000, 0x7F80, 0]
    assert np.isnan(reference_ops.from_bits(reference_ops.to_bits(np.array([np.nan], np.float32), "bf16"), "bf16")).all()


def rows_of(count: int, width: int) -> np.ndarray:
    return np.random.default_rng(width).standard_normal((count, width)).astype(np.float32)
