"""Decode's attention against the numpy truth: what goes into the cells, lists of one part and of many, whatever stands beside a row."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference_decode_mixers as truth
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.gpu.attention_decode import attention_decode, attention_scratch
from kernels_numba.gpu.attention_inputs import attention_inputs
from tests.kernels.attention import Drawn, draw

Array = np.ndarray
RELATIVE = 1e-5  # float32 sums, exponentials of scores of the size of 1
EPS = 1e-6
each_type = pytest.mark.parametrize("dtype", [np.float32, np.float16])

# rows, query heads, kv heads, values, pairs turned, position
INPUTS = [(1, 24, 2, 256, 32, 262_100), (8, 24, 2, 256, 32, 0), (3, 6, 2, 64, 8, 40), (2, 3, 3, 40, 20, 5), (5, 1, 1, 96, 0, 1)]


@each_type
@pytest.mark.parametrize(("rows", "count", "kv_heads", "dim", "half", "place"), [(2, 2, 1, 40, 9, 3)] if SIMULATED else INPUTS)
def test_inputs(rows: int, count: int, kv_heads: int, dim: int, half: int, place: int, dtype: type) -> None:
    """Cells before and after the rows' stay as they were; a value's and, but for its last bits, a key's cell is the truth's."""
    rng = np.random.default_rng(dim)
    shapes = (rows, (2 * count + 2 * kv_heads) * dim), (dim,), (dim,)
    heads, q_norm, k_norm = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    turns = (1 / 1e4 ** (np.arange(half) / max(1, half))).astype(np.float32)
    keys: Array = np.full((kv_heads, place + rows + 2, dim), -7, dtype)
    values = keys.copy()
    query = np.full((rows, count, dim), np.nan, np.float32)
    want = query.copy(), keys.copy(), values.copy()
    on = [to_device(part) for part in (heads, q_norm, k_norm, turns, np.array([place]), query, keys, values)]
    truth.attention_inputs(heads, q_norm, k_norm, EPS, turns, np.array([place]), *want)
    attention_inputs(on[0], on[1], on[2], EPS, on[3], on[4], on[5], on[6], on[7])
    assert distance(to_host(on[5]), want[0]) <= RELATIVE
    np.testing.assert_allclose(to_host(on[6]), want[1], rtol=RELATIVE if dtype is np.float32 else 1e-3, atol=RELATIVE)
    assert (to_host(on[7]) == want[2]).all()
    outside = np.delete(to_host(on[6]), range(place, place + rows), axis=1)
    assert (outside == -7).all()


# (K, R, G, D), position of the first row, blocks chosen
CASES = [
    ((2, 1, 12, 256), 0, 512),
    ((2, 8, 12, 256), 5, 512),
    ((2, 8, 12, 256), 2046, 512),  # from reading all to reading some
    ((2, 1, 12, 256), 100_001, 512),
    ((2, 8, 3, 64), 60, 16),
    ((2, 5, 4, 64), 3000, 512),
    ((1, 8, 16, 200), 300, 40),
    ((3, 3, 1, 8), 40, 7),
    ((1, 2, 2, 96), 31, 8),
]


@each_type
@pytest.mark.parametrize(("shape", "start", "chosen"), [((1, 2, 2, 40), 38, 9), ((2, 1, 1, 72), 35, 3)] if SIMULATED else CASES)
def test_attention(shape: tuple[int, int, int, int], start: int, chosen: int, dtype: type) -> None:
    drawn = draw(shape, start, chosen, dtype)
    assert distance(run(drawn), expected(drawn)) <= RELATIVE


@pytest.mark.gpu
@pytest.mark.parametrize("block", [1, 2, 5, 8, 64])
def test_any_block(block: int) -> None:
    drawn = draw((2, 8, 3, 64), 150, 2, block=block)
    assert distance(run(drawn), expected(drawn)) <= RELATIVE


@pytest.mark.gpu
def test_every_place_of_a_row_in_its_block_and_list() -> None:
    """Lists of 1 to 136 keys, with one to five parts, the last of them with 1 to 32 keys."""
    for start in range(0, 136, 4):
        drawn = draw((2, 4, 3, 32), start, 100)
        assert distance(run(drawn), expected(drawn)) <= RELATIVE, start


@pytest.mark.gpu
@each_type
@pytest.mark.parametrize("start", [3, 2040, 2046, 50_000])
def test_a_rows_bits_do_not_depend_on_the_rows_beside_it_or_on_the_context(start: int, dtype: type) -> None:
    drawn = draw((2, 8, 12, 256), start, 512, dtype)
    whole = run(drawn)
    room = [np.concatenate([part, np.full((2, 500, 256), np.nan, dtype)], axis=1) for part in (drawn.keys, drawn.values)]
    for row in range(8):
        alone = drawn.part(row, row + 1)
        moved = Drawn(alone.query, room[0], room[1], alone.chosen, 4, alone.start)
        assert (run(moved, gates_from=row).view(np.uint32) == whole[row].view(np.uint32)).all(), row


@pytest.mark.gpu
@pytest.mark.parametrize("spread", [0.0, 30.0, 3000.0])
def test_scores_that_are_equal_or_far_apart(spread: float) -> None:
    drawn = draw((2, 8, 12, 256), 3000, 512, spread=spread)
    assert distance(run(drawn), expected(drawn)) <= RELATIVE * (1 + spread)  # scores are off in proportion to their size


@pytest.mark.gpu
def test_a_nan_is_not_lost_and_reaches_no_other_head() -> None:
    drawn = draw((2, 2, 3, 64), 50, 4)
    drawn.query[1, 1, 0, 3] = np.nan
    got = run(drawn).reshape(2, 2, 3, 64)  # row, kv head, head
    assert np.isnan(got[1, 1, 0]).all()
    got[1, 1, 0] = 0
    assert np.isfinite(got).all()


def test_no_rows_launch_nothing() -> None:
    assert run(draw((1, 2, 2, 40), 38, 9).part(0, 0)).shape == (0, 80)


def test_scratch_is_for_the_longest_list() -> None:
    assert attention_scratch(1, 24, 256, 262_144, 512, 4) == 24 * 65 * 258  # 2,051 keys
    assert attention_scratch(8, 6, 64, 8192, 16, 4) == 8 * 6 * 3 * 66
    assert attention_scratch(1, 8, 64, 100, 512, 4) == 8 * 4 * 66  # all of a short context


def test_wrong_arguments_are_refused() -> None:
    drawn = draw((1, 2, 2, 32), 11, 2)
    with pytest.raises(ValueError, match="partial holds 67 values: wanted 136"):
        run(drawn, short=69)
    with pytest.raises(ValueError, match="2 query heads of 36 values on 1 kv heads"):
        run(draw((1, 2, 2, 36), 11, 2))


def gates_of(rows: int, width: int) -> Array:
    return np.random.default_rng(width).standard_normal((rows, width)).astype(np.float32)


def layer_form(drawn: Drawn, gates_from: int = 0) -> tuple[Array, Array]:
    """Queries [R, Q, D], and heads of which only the gates count: the others are NaN. `gates_from`: the row of the first gates."""
    kv_heads, rows, group, dim = drawn.query.shape
    query = np.ascontiguousarray(drawn.query.swapaxes(0, 1)).reshape(rows, kv_heads * group, dim)
    heads = np.full((rows, 2 * kv_heads * (group + 1), dim), np.nan, np.float32)
    gates = gates_of(8, kv_heads * group * dim)[gates_from : gates_from + rows]
    heads[:, 1 : 2 * kv_heads * group : 2] = gates.reshape(rows, kv_heads * group, dim)
    return query, heads.reshape(rows, 2 * kv_heads * (group + 1) * dim)


def run(drawn: Drawn, gates_from: int = 0, short: int = 0) -> Array:
    query, heads = layer_form(drawn, gates_from)
    (rows, count, dim), context = query.shape, drawn.keys.shape[1]
    size = attention_scratch(rows, count, dim, context, drawn.chosen.shape[1], drawn.block) - short
    partial, out = to_device(np.full(size, np.nan, np.float32)), to_device(np.full((rows, count * dim), np.nan, np.float32))
    parts = query, drawn.keys, drawn.values, drawn.chosen, heads, np.array([drawn.start])
    on = [to_device(part) for part in parts]
    attention_decode(on[0], on[1], on[2], on[3], on[4], drawn.block, on[5], partial, out)
    return to_host(out)


def expected(drawn: Drawn) -> Array:
    query, heads = layer_form(drawn)
    out = np.empty((len(query), query[0].size), np.float32)
    none = np.empty(0, np.float32)
    truth.attention_decode(query, drawn.keys, drawn.values, drawn.chosen, heads, drawn.block, np.array([drawn.start]), none, out)
    return out


def distance(got: Array, want: Array) -> float:
    """The largest relative L2 of a row."""
    return float((np.linalg.norm(got - want, axis=-1) / np.linalg.norm(want, axis=-1)).max())
