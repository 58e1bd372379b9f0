"""Index scores against the numpy truth: tokens, blocks and heads that fill no tile, one tile and many."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference_ops
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.gpu.index_scores import index_scores

ROUNDING = 2.0**-24
# tokens, heads, values, blocks
CASES = [(1, 1, 16, 1), (3, 2, 48, 130), (33, 4, 64, 127), (32, 4, 128, 128), (100, 8, 32, 1000), (400, 4, 128, 5555)]


@pytest.mark.parametrize(("tokens", "heads", "dim", "width"), [(3, 2, 32, 5)] if SIMULATED else CASES)
def test_equals_the_reference(tokens: int, heads: int, dim: int, width: int) -> None:
    queries, blocks = draw(tokens, heads, dim, width)
    limit = (dim + 8) * ROUNDING * reference_ops.index_scores(np.abs(queries), np.abs(blocks[:width]))
    assert (np.abs(run(queries, blocks, width) - reference_ops.index_scores(queries, blocks[:width])) <= limit).all()


@pytest.mark.gpu
def test_a_score_depends_on_its_query_and_block_alone() -> None:
    queries, blocks = draw(300, 4, 128, 700)
    whole = run(queries, blocks, 700)
    for at, to, width in ((0, 1, 700), (17, 18, 513), (3, 77, 1), (255, 300, 699)):
        assert (run(queries[at:to].copy(), blocks, width).view(np.uint32) == whole[at:to, :width].view(np.uint32)).all()


@pytest.mark.gpu
def test_a_block_that_no_head_likes_scores_0_and_a_nan_stays() -> None:
    queries = np.ones((2, 4, 32), np.float32)
    queries[1, 2, 5] = np.nan
    got = run(queries, -np.ones((3, 32), np.float32), 3)
    assert (got[0] == 0).all() and np.isnan(got[1]).all()


def test_no_blocks_launch_nothing() -> None:
    queries, blocks = draw(3, 2, 32, 5)
    assert run(queries, blocks, 0).shape == (3, 0)


def test_wrong_shapes_are_refused() -> None:
    queries, blocks = draw(3, 3, 32, 5)
    with pytest.raises(ValueError, match="3 heads of 32 values, 5 of 7 blocks: wanted 1, 2, 4 or 8, and a multiple of 16"):
        run(queries, blocks, 5)


def draw(tokens: int, heads: int, dim: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Queries, and two blocks more than are asked for, which nothing may read."""
    rng = np.random.default_rng(dim + width)
    queries, blocks = (rng.standard_normal(shape).astype(np.float32) for shape in ((tokens, heads, dim), (width + 2, dim)))
    blocks[width:] = np.nan
    return queries, blocks


def run(queries: np.ndarray, blocks: np.ndarray, width: int) -> np.ndarray:
    out = to_device(np.full((len(queries), width), -7, np.float32))
    index_scores(to_device(queries), to_device(blocks), out)
    return to_host(out)
