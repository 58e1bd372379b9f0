"""The choice of experts and their sum for a few rows, and the highest logit, against the numpy truth; the same bits in any company."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference_decode
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.gpu.decode_experts import experts_combine, route_decode, silu_pair
from tests.kernels.scores import EXPERTS, score_rows

NAN, INF = np.float32(np.nan), np.float32(np.inf)


@pytest.mark.parametrize("experts", [1, 3, 70] if SIMULATED else EXPERTS)
def test_the_route(experts: int) -> None:
    counts = {1, 3} if SIMULATED else {1, 2, 10, 16, 32}
    for count in sorted(c for c in counts if c <= experts):
        scores = score_rows(experts, seed=count)
        for rows in (scores[[1, 7, 8]],) if SIMULATED else (scores, scores[:1], scores[-3:]):
            got, wanted = route(rows, count), true_route(rows, count)
            assert (got[0] == wanted[0]).all()
            assert np.allclose(got[1], wanted[1], rtol=3e-6, atol=1e-38, equal_nan=True)
            assert (got[2] == wanted[2]).all()
            assert got[3] == wanted[3]


def test_a_routes_bits_do_not_depend_on_the_rows_beside_it() -> None:
    scores = np.random.default_rng(5).standard_normal((3, 40)).astype(np.float32)
    ids, weights, _, _ = route(scores, 4)
    for r in range(3):
        alone = route(scores[r : r + 1], 4)
        assert (alone[0] == ids[r]).all() and (alone[1].view(np.uint32) == weights[r].view(np.uint32)).all()


@pytest.mark.parametrize(("experts", "count"), [(8, 0), (8, 9), (512, 33)])
def test_a_k_out_of_range_is_refused(experts: int, count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} of {experts} experts: wanted 1 to {min(experts, 32)}"):
        route(np.zeros((1, experts), np.float32), count)


@pytest.mark.parametrize(("jobs", "width"), [(3, 45)] if SIMULATED else [(10, 640), (80, 640), (3, 45), (0, 8)])
def test_silu_pairs(jobs: int, width: int) -> None:
    gate_up = 10 * np.random.default_rng(width).standard_normal((jobs, 2 * width)).astype(np.float32)
    hidden, wanted = to_device(np.full((jobs, width), NAN)), np.empty((jobs, width), np.float32)
    silu_pair(to_device(gate_up), hidden)
    reference_decode.silu_pair(gate_up, wanted)
    assert np.allclose(to_host(hidden), wanted, rtol=2e-6, atol=1e-37)


@pytest.mark.parametrize(("rows", "width", "count"), [(2, 45, 3)] if SIMULATED else [(1, 2560, 10), (8, 2560, 10), (3, 45, 1), (2, 64, 16)])
def test_the_sum_of_the_experts(rows: int, width: int, count: int) -> None:
    rng = np.random.default_rng(width)
    y, weights = rng.standard_normal((rows * count, width)).astype(np.float32), rng.random((rows, count)).astype(np.float32)
    shared, gate = rng.standard_normal((rows, width)).astype(np.float32), rng.standard_normal(rows).astype(np.float32)
    out = to_device(np.full((rows, width), NAN))
    experts_combine(to_device(y), to_device(weights), to_device(shared), to_device(gate), out)
    # from what the kernel itself gives without experts' shares, the rest is to the bit
    started = to_device(np.full((rows, width), NAN))
    experts_combine(to_device(np.zeros_like(y)), to_device(weights), to_device(shared), to_device(gate), started)
    wanted = to_host(started).copy()
    for j in range(count):
        wanted += weights[:, j, None] * y[j::count]
    assert (to_host(out).view(np.uint32) == wanted.view(np.uint32)).all()
    truth = np.empty((rows, width), np.float32)
    reference_decode.experts_combine(y, weights, shared, gate, truth)
    assert np.allclose(to_host(out), truth, rtol=0, atol=1e-6 * (1 + count))


def route(scores: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    rows, experts = scores.shape
    ids, weights = to_device(np.full((rows, count), -7, np.int32)), to_device(np.full((rows, count), NAN))
    addresses, nans = to_device(np.full((rows, count), -7, np.int64)), to_device(np.array([5], np.int32))
    route_decode(to_device(scores), to_device(table_of(experts)), ids, weights, addresses, nans)
    return to_host(ids), to_host(weights), to_host(addresses), int(to_host(nans)[0])


def true_route(scores: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    ids, weights = np.empty((len(scores), count), np.int32), np.empty((len(scores), count), np.float32)
    addresses, nans = np.empty((len(scores), count), np.int64), np.array([5], np.int32)
    reference_decode.route_decode(scores, table_of(scores.shape[1]), ids, weights, addresses, nans)
    return ids, weights, addresses, int(nans[0])


def table_of(experts: int) -> np.ndarray:
    """Addresses that need all of their 64 bits."""
    return (np.arange(experts, dtype=np.int64) + 3) << 40 | 0x7FFF_FFF0
