"""The streams of a token against the numpy truth; the sum that goes into them to the bit, and the same bits in any company."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference_decode
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.gpu.hyper_connection import hyper_inject_norm

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


def test_wrong_arguments_are_refused() -> None:
    streams, block, strengths, weight = drawn(1, 2, 8)
    with pytest.raises(ValueError, match=r"strengths is float32 of shape \(1, 1\), wanted float32 of shape \(1, 2\)"):
        inject(streams, block, strengths[:, :1].copy(), weight)


def drawn(rows: int, count: int, hidden: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(hidden)
    shapes = (rows, count * hidden), (rows, hidden), (rows, count), (count, hidden)
    streams, block, strengths, weight = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return streams, block, strengths, weight


def inject(streams: np.ndarray, block: np.ndarray, strengths: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    moved, normed = to_device(streams), to_device(np.full(streams.shape, np.nan, np.float32))
    hyper_inject_norm(moved, to_device(block), to_device(strengths), to_device(weight), 1e-6, normed)
    return to_host(moved), to_host(normed)
