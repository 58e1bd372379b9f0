"""The mixture's small ops against the numpy truth; the weighted sum to the bit, however it is cut."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference_ops
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.gpu.moe import moe_scatter_add, moe_shared_init, silu_multiply

SIZES = [(3, 5, 2)] if SIMULATED else [(3, 5, 2), (130, 2560, 10), (70_000, 8, 4)]


@pytest.mark.parametrize(("tokens", "width", "slots"), SIZES)
def test_scatter_add_is_the_same_bits_in_any_cut(tokens: int, width: int, slots: int) -> None:
    rng = np.random.default_rng(tokens)
    places = rng.permutation(tokens * slots).reshape(tokens, slots).astype(np.int32)
    places[0] = -1
    y = rng.standard_normal((tokens * slots, width)).astype(np.float32)
    weights, acc = rng.random((tokens, slots)).astype(np.float32), rng.standard_normal((tokens, width)).astype(np.float32)
    wanted = acc.copy()
    reference_ops.moe_scatter_add(y, weights, places, wanted)
    whole, cut = to_device(acc), to_device(acc)
    moe_scatter_add(to_device(y), to_device(weights), to_device(places), whole)
    for kept in (np.arange(slots) < slots // 2, np.arange(slots) >= slots // 2):
        moe_scatter_add(to_device(y), to_device(weights), to_device(np.where(kept, places, -1).astype(np.int32)), cut)
    assert (to_host(whole).view(np.uint32) == wanted.view(np.uint32)).all()
    assert (to_host(cut).view(np.uint32) == wanted.view(np.uint32)).all()


@pytest.mark.parametrize(("tokens", "width", "slots"), SIZES)
def test_shared_init(tokens: int, width: int, slots: int) -> None:
    rng = np.random.default_rng(slots)
    shared, gate = rng.standard_normal((tokens, width)).astype(np.float32), 20 * rng.standard_normal(tokens).astype(np.float32)
    gate[:3] = [np.inf, -100, 100]
    acc = to_device(np.full((tokens, width), np.nan, np.float32))
    moe_shared_init(to_device(shared), to_device(gate), acc)
    assert np.allclose(to_host(acc), reference_ops.moe_shared_init(shared, gate), rtol=1e-6, atol=1e-37)


def test_silu_multiply_in_place() -> None:
    gate = np.array([[-200, -90, -1, -0.0, 0, 1e-20, 1, 90, 200, np.nan]], np.float32)
    up = np.full(gate.shape, 2, np.float32)
    out = to_device(gate)
    silu_multiply(out, to_device(up), out)
    assert np.allclose(to_host(out), reference_ops.silu(gate) * 2, rtol=1e-6, atol=1e-35, equal_nan=True)


def test_no_tokens_launch_nothing() -> None:
    empty = to_device(np.empty((0, 4), np.float32))
    moe_shared_init(empty, to_device(np.empty(0, np.float32)), empty)
    moe_scatter_add(empty, to_device(np.empty((0, 2), np.float32)), to_device(np.empty((0, 2), np.int32)), empty)
    silu_multiply(empty, empty, empty)
