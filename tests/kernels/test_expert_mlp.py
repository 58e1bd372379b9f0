"""The expert kernel: its arithmetic against float64, and that a row's bits are its own."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from kernels_numba.cpu import expert_mlp as kernels
from kernels_numba.cpu.expert_mlp import expert_hidden, expert_mlp, project, scatter_add

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
SHAPES = [(256, 64), (72, 24), (33, 17), (5, 3), (7, 40), (64, 1), (1, 9), (300, 77), (2560, 640)]


def draw(rows: int, hidden: int, width: int, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    shapes = ((rows, hidden), (width, hidden), (width, hidden), (hidden, width))
    x, gate, up, down = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    into, back = np.float32(hidden**-0.5), np.float32(width**-0.5)
    return x, gate * into, up * into, down * back


def exact(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    g = x.astype(np.float64) @ gate.T.astype(np.float64)
    return (g / (1 + np.exp(-g)) * (x.astype(np.float64) @ up.T)) @ down.T.astype(np.float64)


@pytest.mark.parametrize(("hidden", "width"), SHAPES)
@pytest.mark.parametrize("rows", [1, 6])
def test_equals_float64(rows: int, hidden: int, width: int) -> None:
    operands = draw(rows, hidden, width)
    want = exact(*operands)
    assert np.abs(expert_mlp(*operands) - want).max() <= 2e-6 * np.abs(want).max()


@pytest.mark.parametrize(("hidden", "width"), [(256, 64), (33, 17), (520, 136)])
def test_a_rows_bits_do_not_depend_on_the_other_rows(hidden: int, width: int) -> None:
    """Every count from 1 to 70, from every start: tiles of four rows and single rows, one thread and several."""
    x, gate, up, down = draw(70, hidden, width)
    alone = np.concatenate([expert_mlp(x[i : i + 1], gate, up, down) for i in range(70)])
    rng = np.random.default_rng(1)
    for count in range(1, 71):
        for rows in (np.arange(count), np.arange(70 - count, 70), rng.permutation(70)[:count]):
            np.testing.assert_array_equal(expert_mlp(x[rows], gate, up, down), alone[rows], err_msg=f"{count} rows: {rows}")


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    operands = draw(70, 520, 136)
    assert operands[0].size * 136 > kernels._SMALL, "this size is meant to be shared among threads"
    many = expert_mlp(*operands)
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        np.testing.assert_array_equal(expert_mlp(*operands), many)
    finally:
        numba.set_num_threads(threads)


def test_one_thread_and_several_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    operands = draw(9, 520, 136)
    several = expert_mlp(*operands)
    monkeypatch.setattr(kernels, "_SMALL", 1 << 60)
    np.testing.assert_array_equal(expert_mlp(*operands), several)


def test_the_sum_has_the_stated_order() -> None:
    """Eight lanes by fused multiply-adds, then the tree: emulated in float64, where each product of float32 is exact."""
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal((n, 100)).astype(np.float32) for n in (5, 11))
    lanes = np.zeros((5, 11, 8), np.float32)
    for k in range(100):
        product = x[:, None, k].astype(np.float64) * w[None, :, k].astype(np.float64)
        lanes[:, :, k % 8] = (product + lanes[:, :, k % 8]).astype(np.float32)
    four = lanes[..., :4] + lanes[..., 4:]
    two = four[..., :2] + four[..., 2:]
    # rounding twice (float64, then float32) may differ from one fused rounding by an ulp where the first one makes a tie
    np.testing.assert_array_almost_equal_nulp(project(x, w), two[..., 0] + two[..., 1], nulp=4)


def test_no_rows_give_no_rows_and_launch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, gate, up, down = draw(0, 256, 64)

    def launched(*_: object) -> None:
        raise AssertionError("a kernel was launched for no rows")

    for name in ("_outs", "_shared_outs", "_scatter_add"):
        monkeypatch.setattr(kernels, name, launched)
    y = expert_mlp(x, gate, up, down)
    assert y.shape == (0, 256) and y.dtype == np.float32
    scatter_add(np.zeros((3, 256), np.float32), np.zeros(0, np.int64), np.zeros(0, np.float32), y)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_go_through(bad: float) -> None:
    x, gate, up, down = draw(6, 64, 32)
    clean = expert_mlp(x, gate, up, down)
    x[2, 5] = bad
    y = expert_mlp(x, gate, up, down)
    assert np.isnan(y[2]).all(), "inf times weights of both signs is a NaN in the end"
    np.testing.assert_array_equal(np.delete(y, 2, 0), np.delete(clean, 2, 0))


def test_a_nan_in_one_weight_reaches_what_reads_it() -> None:
    x, gate, up, down = draw(3, 64, 32)
    down[7, 31] = np.nan
    assert np.isnan(expert_mlp(x, gate, up, down)[:, 7]).all()
    assert np.isfinite(np.delete(expert_mlp(x, gate, up, down), 7, 1)).all()


def test_large_negative_gates_close_and_do_not_overflow() -> None:
    gate = np.array([[-200.0], [200.0]], np.float32)
    hidden = expert_hidden(np.ones((1, 1), np.float32), gate, np.ones((2, 1), np.float32))
    assert hidden[0, 0] == 0 and hidden[0, 1] == 200


def test_scatter_add_adds_in_order_and_rounds_the_product() -> None:
    acc = np.full((4, 5), np.float32(1), np.float32)
    y = np.arange(15, dtype=np.float32).reshape(3, 5) * np.float32(0.1)
    weights = np.array([0.3, 0.7, -0.1], np.float32)
    want = acc.copy()
    for row, weight, values in zip([3, 0, 3], weights, y, strict=True):
        want[row] = want[row] + weight * values
    scatter_add(acc, np.array([3, 0, 3]), weights, y)
    np.testing.assert_array_equal(acc, want)
