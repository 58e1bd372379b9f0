"""The index's decode ops against the numpy truth: rows at every place of a block, few and many blocks, whatever stands beside a row."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference_decode_mixers as truth
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.gpu import index_decode as kernels
from kernels_numba.gpu.select_blocks import select_threads
from tests.kernels.scores import score_rows

Floats = np.ndarray
RELATIVE = 1e-5  # float32 sums of at most 256 values
ROUNDING = 2.0**-24
EPS = 1e-6
BLOCK = 4


def frequencies(pairs: int) -> Floats:
    return (1 / 1e4 ** (np.arange(pairs, dtype=np.float32) / np.float32(max(1, pairs)))).astype(np.float32)


def at(place: int) -> np.ndarray:
    return np.array([place], np.int64)


def normal(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


# position, rows, values, pairs turned, pending keys
APPENDED = [(p, rows, dim, half, BLOCK) for p in (0, 1, 2, 3, 262_133) for rows in (1, 3, 8) for dim, half in ((128, 32), (64, 8))]
APPENDED += [(9, 8, 100, 50, 12), (6, 5, 36, 0, 8), (50, 8, 256, 128, 16)]


@pytest.mark.parametrize(("place", "rows", "dim", "half", "kept"), [(2, 3, 36, 9, 8)] if SIMULATED else APPENDED)
def test_append(place: int, rows: int, dim: int, half: int, kept: int) -> None:
    k, pending, weight, turns = normal(rows, dim + 7), normal(kept, dim, seed=1), normal(dim), frequencies(half)
    blocks = np.full(((place + rows) // BLOCK + 1, dim), -7, np.float32)
    kept_want, want = pending.copy(), blocks.copy()
    truth.index_append(k, 5, kept_want, want, BLOCK, weight, EPS, turns, at(place))
    on = [to_device(part) for part in (k, pending, blocks, weight, turns, at(place))]
    kernels.index_append(on[0], 5, on[1], on[2], BLOCK, on[3], EPS, on[4], on[5])
    np.testing.assert_array_equal(to_host(on[1]), kept_want)
    np.testing.assert_allclose(to_host(on[2]), want, rtol=0, atol=RELATIVE * np.abs(want).max())
    assert (to_host(on[2])[(want == -7).all(1)] == -7).all()


@pytest.mark.gpu
@pytest.mark.parametrize("place", range(8))
def test_append_in_turn_and_again_has_the_bits_of_one_call(place: int) -> None:
    """With room for a block and seven tokens, rows that were taken back are as never read."""
    k, weight, turns = normal(8, 128), to_device(normal(128)), to_device(frequencies(32))

    def appended(*spans: tuple[int, int]) -> Floats:
        pending, blocks = to_device(normal(12, 128, seed=2)), to_device(np.zeros((5, 128), np.float32))
        for begin, end in spans:
            kernels.index_append(to_device(k[begin:end]), 0, pending, blocks, BLOCK, weight, EPS, turns, to_device(at(place + begin)))
        return to_host(blocks)[: (place + spans[-1][1]) // BLOCK]

    whole = appended((0, 8))
    assert (whole == appended(*((r, r + 1) for r in range(8)))).all()
    for back in range(1, 8):
        assert (whole == appended((0, 8), (back, 8))).all()


@pytest.mark.parametrize(
    ("rows", "heads", "dim", "half"), [(2, 2, 36, 8)] if SIMULATED else [(1, 4, 128, 32), (8, 4, 64, 8), (3, 1, 200, 100)]
)
@pytest.mark.parametrize("place", [0, 262_140])
def test_queries(rows: int, heads: int, dim: int, half: int, place: int) -> None:
    q, weight, turns = normal(rows, heads * dim + 9), normal(dim), frequencies(half)
    out, want = to_device(np.full((rows, heads, dim), np.nan, np.float32)), np.empty((rows, heads, dim), np.float32)
    truth.index_queries(q, 3, weight, EPS, turns, at(place), want)
    kernels.index_queries(to_device(q), 3, to_device(weight), EPS, to_device(turns), to_device(at(place)), out)
    assert (np.linalg.norm(to_host(out) - want, axis=-1) <= RELATIVE * np.linalg.norm(want, axis=-1)).all()


# position, rows, heads, values, scores a row, blocks chosen
SCORED = [
    (18, 4, 2, 64, 6, 3),
    (2051, 8, 4, 128, 600, 512),
    (2046, 8, 4, 64, 600, 512),
    (40_003, 3, 4, 128, 10_002, 512),
    (262_130, 8, 4, 128, 65_536, 512),
    (700, 2, 16, 256, 176, 1),
    (700, 5, 3, 72, 177, 2),
]


@pytest.mark.parametrize(("place", "rows", "heads", "dim", "width", "count"), [(17, 3, 2, 40, 6, 4)] if SIMULATED else SCORED)
def test_scores(place: int, rows: int, heads: int, dim: int, width: int, count: int) -> None:
    """What is not whole, and rows that read everything, are left as they were; keys past the last whole block are never used."""
    queries, blocks = normal(rows, heads, dim), normal(width + 1, dim, seed=3)
    blocks[(place + rows) // BLOCK :] = np.nan
    want, limit = np.full((rows, width), -7, np.float32), np.zeros((rows, width), np.float32)
    truth.index_scores_at(queries, blocks, BLOCK, count, at(place), want)
    truth.index_scores_at(np.abs(queries), np.abs(blocks), BLOCK, count, at(place), limit)
    got = scored(queries, blocks, place, width, count)
    assert (np.abs(got - want) <= (dim + 8) * ROUNDING * limit).all()
    assert (want[0] == -7).all() == ((place + 1) // BLOCK <= count)


def scored(queries: Floats, blocks: Floats, place: int, width: int, count: int) -> Floats:
    scores = to_device(np.full((len(queries), width), -7, np.float32))
    kernels.index_scores_at(to_device(queries), to_device(blocks), BLOCK, count, to_device(at(place)), scores)
    return to_host(scores)


@pytest.mark.gpu
def test_a_score_depends_on_its_query_and_block_alone() -> None:
    queries, blocks = normal(8, 4, 128), normal(700, 128)
    whole = scored(queries, blocks, 2500, 650, 512)
    for r in range(8):
        seen = (2500 + r + 1) // BLOCK
        assert (scored(queries[r : r + 1], blocks, 2500 + r, 700, 1)[0, :seen] == whole[r, :seen]).all()
    queries[3, 2, 5] = np.nan
    spoiled = scored(queries, blocks, 2500, 650, 512)
    assert np.isnan(spoiled[3, :626]).all() and (np.delete(spoiled, 3, 0) == np.delete(whole, 3, 0)).all()


@pytest.mark.parametrize("width", [130] if SIMULATED else [33, 513, 1025, 8192, 65_536])
def test_selection(width: int) -> None:
    scores = score_rows(width, seed=width)
    scores = np.ascontiguousarray(scores[[1, 7]] if SIMULATED else scores[:8])
    place = 20 * width - len(scores)  # the last row has `width` whole blocks of 20, the others one less
    for count in [7] if SIMULATED else sorted({1, min(512, width - 2), width - 1, width}):
        chosen, want = to_device(np.full((len(scores), count), -7, np.int32)), np.empty((len(scores), count), np.int32)
        kernels.select_blocks_at(to_device(scores), 20, to_device(at(place)), chosen)
        truth.select_blocks_at(scores, 20, at(place), want)
        assert (to_host(chosen) == want).all(), count


def test_threads_of_a_selection() -> None:
    assert [select_threads(width) for width in (0, 1, 1024, 1025, 2048, 8191, 8193, 10**6)] == [128, 128, 128, 256, 256, 1024, 1024, 1024]


def test_wrong_shapes_are_refused() -> None:
    k, place = normal(2, 40), at(3)
    with pytest.raises(ValueError, match="columns 9 to 41 of k's 40, 16 turned of heads of 32 values"):
        kernels.index_append(k, 9, normal(4, 32), normal(9, 32), 4, normal(32), EPS, frequencies(8), place)
    with pytest.raises(ValueError, match="6 pending keys of blocks of 4: wanted a multiple"):
        kernels.index_append(k, 8, normal(6, 32), normal(9, 32), 4, normal(32), EPS, frequencies(8), place)
    with pytest.raises(ValueError, match="2 heads of 36 values, 9 of 8 blocks"):
        kernels.index_scores_at(normal(1, 2, 36), normal(8, 36), 4, 2, place, normal(1, 9))
