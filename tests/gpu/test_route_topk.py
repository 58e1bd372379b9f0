"""The k best experts, to the bit, for any E and k, with ties, infinities and NaN."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference_ops
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.gpu.route_topk import route_topk
from tests.kernels.scores import EXPERTS, score_rows


@pytest.mark.parametrize("experts", [1, 3, 130] if SIMULATED else EXPERTS)
def test_equals_the_reference(experts: int) -> None:
    counts = {1, 2, 10, 16} if not SIMULATED else {1, 2}
    for count in sorted(c for c in counts if c <= experts):
        scores = score_rows(experts, seed=count)
        if SIMULATED:
            scores = scores[[1, 7, 8]]
        ids, values, nans = run(scores, count)
        wanted = reference_ops.route_topk(scores, count)
        assert (ids == wanted[0]).all()
        assert np.array_equal(values, wanted[1], equal_nan=True)
        assert (nans == wanted[2]).all()


@pytest.mark.gpu
def test_many_tokens() -> None:
    scores = np.random.default_rng(0).standard_normal((70_000, 512)).astype(np.float32)
    assert (run(scores, 10)[0] == reference_ops.route_topk(scores, 10)[0]).all()


def test_no_tokens_launch_nothing() -> None:
    assert run(np.empty((0, 8), np.float32), 2)[0].shape == (0, 2)


@pytest.mark.parametrize("count", [0, 9])
def test_a_k_out_of_range_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} of 8 experts: wanted 1 to 8"):
        run(np.zeros((1, 8), np.float32), count)


def run(scores: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ids, values = to_device(np.full((len(scores), count), -7, np.int32)), to_device(np.zeros((len(scores), count), np.float32))
    nans = to_device(np.full(len(scores), -7, np.int32))
    route_topk(to_device(scores), ids, values, nans)
    return to_host(ids), to_host(values), to_host(nans)
