"""The streams of a token against the numpy truth; the sum that goes into them to the bit, and the same bits in any company."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference_decode
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.gpu.hyper_connection import hyper_gate, hyper_inject_norm, hyper_mix

# rows, streams, hidden: fewer values than threads, a multiple and not
SIZES = [(2, 2, 515)] if SIMULATED else [(1, 4, 2560), (8, 4, 2560), (3, 2, 515), (2, 3, 40), (2, 1, 7000)]


@pytest.mark.parametrize(("rows", "count", "hidden"), SIZES)
def test_inject_and_norm(rows: int, count: int, hidden: int) -> None:
    streams, block, strengths, weight = drawn(rows, count, hidden)
    streams[0, :hidden] = 0
    strengths[0, 0] = 0  # the norm of zeros is zeros
    got, normed = inject(streams, block, strengths, weight)
    wanted, wanted_norm = streams.copy(), np.empty_like(streams)
    reference_decode.hyper_inject_norm(wanted, block, strengths, weight, 1e-6, wanted_norm)
    assert (got.view(np.uint32) == wanted.view(np.uint32)).all()
    assert np.allclose(normed, wanted_norm, rtol=(hidden / 512 + 20) * 2.0**-24, atol=0)
    assert (normed[0, :hidden] == 0).all()
    if rows > 1:
        alone, alone_norm = inject(streams[1:2], block[1:2], strengths[1:2], weight)
        assert (alone.view(np.uint32) == got[1:2].view(np.uint32)).all()
        assert (alone_norm.view(np.uint32) == normed[1:2].view(np.uint32)).all()


@pytest.mark.parametrize("injects", [True, False])
@pytest.mark.parametrize(("rows", "count", "rank"), [(3, 4, 37)] if SIMULATED else [(1, 4, 320), (8, 4, 320), (3, 2, 37)])
def test_gate(rows: int, count: int, rank: int, injects: bool) -> None:
    given = count if injects else 0
    down = 30 * np.random.default_rng(rank).standard_normal((rows, rank + given)).astype(np.float32)
    down[0, 0] = -1000
    act, strengths = (to_device(np.full((rows, size), np.nan, np.float32)) for size in (rank, given))
    hyper_gate(to_device(down), act, strengths, count)
    wanted, wanted_strengths = np.empty((rows, rank), np.float32), np.empty((rows, given), np.float32)
    with np.errstate(over="ignore"):
        reference_decode.hyper_gate(down, wanted, wanted_strengths, count)
    assert np.allclose(to_host(act), wanted, rtol=2e-6, atol=1e-35)
    assert np.allclose(to_host(strengths), wanted_strengths, rtol=2e-6, atol=1e-35)


@pytest.mark.parametrize(("rows", "count", "hidden"), [(2, 3, 45)] if SIMULATED else SIZES)
def test_mix(rows: int, count: int, hidden: int) -> None:
    rng = np.random.default_rng(hidden)
    up, normed = (rng.standard_normal((rows, count * hidden)).astype(np.float32) for _ in range(2))
    x, wanted = to_device(np.full((rows, hidden), np.nan, np.float32)), np.empty((rows, hidden), np.float32)
    hyper_mix(to_device(up), to_device(normed), x)
    reference_decode.hyper_mix(up, normed, wanted)
    assert np.allclose(to_host(x), wanted, rtol=0, atol=2e-6 * np.abs(normed).max())
    one = to_device(np.empty((1, hidden), np.float32))
    hyper_mix(to_device(up[-1:]), to_device(normed[-1:]), one)
    assert (to_host(one).view(np.uint32) == to_host(x)[-1:].view(np.uint32)).all()


def test_wrong_arguments_are_refused() -> None:
    streams, block, strengths, weight = drawn(1, 2, 8)
    with pytest.raises(ValueError, match=r"strengths is float32 of shape \(1, 1\), wanted float32 of shape \(1, 2\)"):
        inject(streams, block, strengths[:, :1].copy(), weight)
    with pytest.raises(ValueError, match="rows of 16 values for streams of 7"):
        hyper_mix(to_device(streams), to_device(streams), to_device(np.empty((1, 7), np.float32)))


def drawn(rows: int, count: int, hidden: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(hidden)
    shapes = (rows, count * hidden), (rows, hidden), (rows, count), (count, hidden)
    streams, block, strengths, weight = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return streams, block, strengths, weight


def inject(streams: np.ndarray, block: np.ndarray, strengths: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    moved, normed = to_device(streams), to_device(np.full(streams.shape, np.nan, np.float32))
    hyper_inject_norm(moved, to_device(block), to_device(strengths), to_device(weight), 1e-6, normed)
    return to_host(moved), to_host(normed)
