"""The numpy truth of a token's ops against torch in float64, and by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional

from kernels_numba import reference, reference_decode, reference_ops
from kernels_numba.endings import Columns, Gates, Mixed
from kernels_numba.repack import repack
from tests.gpu.weights import matrix


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def wide(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).double()


@pytest.mark.parametrize("planar", [False, True])
def test_dense_products_of_two_matrices(planar: bool) -> None:
    plain = [matrix("Q8_0", 3, 64, 1), matrix("Q8_0", 2, 64, 2)]
    kept = [repack(data, "Q8_0") if planar else data for data in plain]
    table, ends = np.array([data.ctypes.data for data in kept]), np.array([3, 5], np.int32)
    stack = SimpleNamespace(table=table, ends=ends, num_outs=5, format_name="Q8_0", width=64, planar=planar)
    weights = [reference.dequantize(data, "Q8_0").reshape(-1, 64) for data in plain]
    x, out = drawn(0, 2, 64), np.full((2, 8), 7, np.float32)
    reference_decode.dense_matvec(x, stack, Columns(out, 2))
    assert (out[:, [0, 1, 7]] == 7).all()
    assert np.allclose(out[:, 2:7], np.concatenate([x.astype(np.float64) @ w.T for w in weights], axis=1), rtol=1e-6, atol=1e-7)
    codes, scales = reference_ops.quantize_rows(x)
    reference_decode.dense_matvec_q8(codes, scales, stack, Columns(out))
    rounded = np.repeat(scales, 32, axis=1) * codes
    assert np.allclose(out[:, 3:5], rounded.astype(np.float64) @ weights[1].T, rtol=1e-6, atol=1e-6)


def test_streams_as_torch_has_them() -> None:
    streams, block, strengths, weight, up = drawn(1, 3, 20), drawn(2, 3, 5), drawn(3, 3, 4), drawn(4, 4, 5), drawn(5, 3, 20)
    before, normed, x = streams.copy(), np.empty_like(streams), np.empty_like(block)
    reference_decode.hyper_inject_norm(streams, block, strengths, weight, 1e-5, normed)
    summed = torch.from_numpy(before) + (torch.from_numpy(block)[:, None] * torch.from_numpy(strengths)[:, :, None]).flatten(1)
    assert (streams == summed.numpy()).all()
    want = functional.rms_norm(summed.double().view(3, 4, 5), (5,), eps=1e-5) * wide(weight)
    assert np.allclose(normed, want.flatten(1), rtol=1e-6)
    reference_decode.ended(up, Mixed(normed, x))
    assert np.allclose(x, (wide(up).sigmoid() * wide(normed)).view(3, 4, 5).mean(1), rtol=1e-6, atol=1e-7)


def test_gates_as_torch_has_them() -> None:
    down, act, strengths = drawn(1, 2, 11), np.empty((2, 7), np.float32), np.empty((2, 4), np.float32)
    reference_decode.ended(down[:, :5], Gates(act, strengths, 4))
    reference_decode.ended(down[:, 5:], Gates(act, strengths, 4, 5))
    assert np.allclose(act, functional.silu(wide(down)[:, :7] / 4), rtol=1e-6)
    assert np.allclose(strengths, 2 * torch.sigmoid(wide(down)[:, 7:] / 4), rtol=1e-6)
    reference_decode.ended(down[:, :7], Gates(act, np.empty((2, 0), np.float32), 2))
    assert np.allclose(act, functional.silu(wide(down)[:, :7] / 2), rtol=1e-6)


def test_the_route_is_softmax_over_all_made_to_sum_to_one() -> None:
    scores, table = 3 * drawn(1, 4, 30), np.arange(30, dtype=np.int64) * 4096
    ids, addresses = np.empty((4, 6), np.int32), np.empty((4, 6), np.int64)
    weights, nans = np.empty((4, 6), np.float32), np.array([2], np.int32)
    reference_decode.route_decode(scores, table, ids, weights, addresses, nans)
    share, best = wide(scores).softmax(-1).topk(6)
    best, order = best.sort(-1)
    assert (ids == best.numpy()).all()
    assert (addresses == 4096 * ids.astype(np.int64)).all()
    assert np.allclose(weights, (share / share.sum(-1, keepdim=True)).gather(1, order), rtol=1e-6)
    assert nans[0] == 2
    scores[3, [0, 5]] = np.nan
    reference_decode.route_decode(scores, table, ids, weights, addresses, nans)
    assert nans[0] == 4


def test_the_experts_sum() -> None:
    gate_up, hidden = drawn(1, 4, 10), np.empty((4, 5), np.float32)
    reference_decode.silu_pair(gate_up, hidden)
    assert np.allclose(hidden, functional.silu(wide(gate_up)[:, :5]) * wide(gate_up)[:, 5:], rtol=1e-6)
    y, weights, shared, gate, out = drawn(2, 6, 5), drawn(3, 2, 3), drawn(4, 2, 5), drawn(5, 2), np.empty((2, 5), np.float32)
    reference_decode.experts_combine(y, weights, shared, gate, out)
    want = wide(gate).sigmoid()[:, None] * wide(shared) + (wide(weights)[:, :, None] * wide(y).view(2, 3, 5)).sum(1)
    assert np.allclose(out, want, rtol=1e-5, atol=1e-6)
