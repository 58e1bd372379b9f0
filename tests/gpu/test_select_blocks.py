"""The best blocks of each token, to the bit: few and many of them, and scores of which many are equal."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference_ops
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.gpu.select_blocks import select_blocks
from tests.kernels.scores import EXPERTS, score_rows


@pytest.mark.parametrize("width", [130] if SIMULATED else EXPERTS)
def test_equals_the_reference(width: int) -> None:
    """score_rows has ties, infinities, NaN, denormals and signed zeros."""
    scores = score_rows(width, seed=width)
    if SIMULATED:
        scores = scores[[1, 7]]
    start = 20 * width - len(scores)  # the last token has `width` whole blocks of 20, the others one less
    for count in [7] if SIMULATED else sorted({1, 2, 7, max(1, width - 1), width}):
        check(scores, count, 20, start)


@pytest.mark.gpu
@pytest.mark.parametrize(("width", "count"), [(513, 512), (2000, 512), (55_926, 512), (55_926, 1), (100_001, 777)])
def test_many_blocks(width: int, count: int) -> None:
    """As an index makes them: sums of relu, of which many are 0."""
    rng = np.random.default_rng(width)
    scores = np.maximum(rng.standard_normal((9, 4, width)) - 1.5, 0).sum(1).astype(np.float32)
    scores[3], scores[4, : width // 2], scores[5] = 0, 0.5, np.round(scores[5], 1)
    check(scores, count, 4, 4 * width - 9)
    check(scores, count, 4, 4 * width - 40)


@pytest.mark.gpu
@pytest.mark.parametrize("block", [1, 3, 4, 64])
def test_from_the_first_token_on(block: int) -> None:
    """Each token ranks only the blocks that are whole with it; those with few get the first ids."""
    scores = np.random.default_rng(block).standard_normal((3000, -(-3000 // block))).astype(np.float32)
    check(scores, 16, block, 0)


@pytest.mark.gpu
def test_many_tokens() -> None:
    check(np.random.default_rng(1).standard_normal((70_000, 60)).astype(np.float32), 50, 10_000, 600_000 - 70_000)


def test_no_tokens_launch_nothing() -> None:
    assert run(np.empty((0, 8), np.float32), 2, 4, 0).shape == (0, 2)


def test_too_few_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="2 of 8 blocks for 3 tokens from 40 on: wanted at least 1 of 10"):
        run(np.zeros((3, 8), np.float32), 2, 4, 40)


def check(scores: np.ndarray, count: int, block: int, start: int) -> None:
    assert (run(scores, count, block, start) == reference_ops.select_blocks(scores, count, block, start)).all()


def run(scores: np.ndarray, count: int, block: int, start: int) -> np.ndarray:
    chosen = to_device(np.full((len(scores), count), -7, np.int32))
    select_blocks(to_device(scores), block, start, chosen)
    return to_host(chosen)
