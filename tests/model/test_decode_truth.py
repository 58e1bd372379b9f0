"""The numpy truth of decode's mixer ops, put together as a layer, against the layer in torch: what a token costs, one definition."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kernels_numba import reference_decode_mixers as truth
from kernels_numba.kv_formats import KV_FORMATS
from kernels_numba.reference_kv import decode
from strata_recipes.model.gdn import GatedDeltaNet
from strata_recipes.model.indexer import Indexer
from strata_recipes.model.kv_cache import AttentionState, DeltaState
from strata_recipes.model.kv_cells import Places, empty_cells
from strata_recipes.model.qsa import SelectedAttention
from strata_recipes.model.rope import Rope
from tests.kernels.delta_rows import Net, draw

# torch has float32 sums of at most 100 terms against float64 ones
CLOSE: dict[str, Any] = dict(rtol=2e-5, atol=2e-5)
EPS = 1e-6


class Columns:
    """Weights whose matrices pick columns of the input, so that a layer's ops are all that it does."""

    def __init__(self, columns: dict[str, slice], tensors: dict[str, np.ndarray]) -> None:
        self._columns, self._tensors = columns, tensors

    def matrix(self, *names: str) -> Callable[[Tensor], Tensor]:
        return lambda x: x[:, self._columns[names[0]]]

    def tensor(self, name: str) -> Tensor:
        return torch.from_numpy(self._tensors[name].copy())


@pytest.mark.parametrize("gate", ["silu", "sigmoid"])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_delta_net(rows: int, gate: str) -> None:
    """One row is the recurrent form, five are the chunked one."""
    net = Net(2, 6, 24)
    drawn = draw(net, rows)
    mixed = np.delete(drawn.mixed, [net.channels, drawn.rates_at - 1], axis=1)
    rates = net.channels + net.width
    inner, outer = slice(0, rates), slice(rates, None)
    columns = {"attn_qkv.weight": inner, "ssm_alpha.weight": outer, "ssm_out.weight": slice(None)}
    tensors = {"ssm_conv1d.weight": drawn.weight, "ssm_a": drawn.decay, "ssm_dt.bias": drawn.bias, "ssm_norm.weight": drawn.norm}
    geometry: Any = SimpleNamespace(gdn_key_heads=2, gdn_value_heads=6, gdn_head_dim=24, norm_eps=EPS, output_gate=gate)
    weights: Any = Columns(columns, tensors)
    state = DeltaState(torch.from_numpy(drawn.conv.copy()), torch.from_numpy(drawn.state.copy()))
    want = GatedDeltaNet(weights, geometry)(torch.from_numpy(mixed), state)

    qkv, read, out = (np.full((rows, width), np.nan, np.float32) for width in (net.channels, net.width, net.width))
    truth.delta_conv(mixed, drawn.conv, drawn.weight, 2, 24, qkv)
    truth.delta_step(qkv, mixed, rates, drawn.decay, drawn.bias, drawn.state, 2, read)
    truth.delta_norm(read, mixed, net.channels, drawn.norm, EPS, gate, out)
    np.testing.assert_allclose(out, want, **CLOSE)
    np.testing.assert_allclose(drawn.state, state.delta, **CLOSE)
    np.testing.assert_array_equal(drawn.conv, state.conv)


BLOCK, BUDGET = 4, 12
INDEX: Any = SimpleNamespace(norm_eps=EPS, index_block=BLOCK, index_budget=BUDGET, indexer_heads=8, indexer_dim=20)


def index_parts(tokens: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, Indexer, Rope]:
    """x of queries, then keys; the norms' weights, the layer's index and its rope."""
    rng = np.random.default_rng(tokens)
    x, q_norm, k_norm = (rng.standard_normal(shape).astype(np.float32) for shape in ((tokens, 180), (20,), (20,)))
    columns = {"indexer.q_proj.weight": slice(0, 160), "indexer.k_proj.weight": slice(160, 180)}
    rope = Rope(12, 1e4)
    weights: Any = Columns(columns, {"indexer.q_norm.weight": q_norm, "indexer.k_norm.weight": k_norm})
    return x, q_norm, k_norm, Indexer(weights, INDEX, rope), rope


@pytest.mark.parametrize("kept", [BLOCK, 3 * BLOCK])
@pytest.mark.parametrize("spans", [(1,) * 30, (8, 8, 8, 6), (3, 1, 7, 2, 8, 5, 4)], ids=str)
def test_an_index(spans: tuple[int, ...], kept: int) -> None:
    """Keys in, queries, scores and the choice, whatever the rows of a call; of eight heads one likes each block, so that no score is 0."""
    x, q_norm, k_norm, indexer, rope = index_parts(30)
    frequencies, tokens = rope.frequencies.numpy(), torch.from_numpy(x)
    none = empty_cells(KV_FORMATS["fp32"], 1, 0, 1, Places())
    state = AttentionState(none, none, torch.zeros(8, 20), torch.zeros(BLOCK, 20))
    pending, blocks, start = np.zeros((kept, 20), np.float32), np.zeros((8, 20), np.float32), 0
    for rows in spans:
        part, position, stop = x[start : start + rows], np.array([start]), start + rows
        indexer.append(tokens[start:stop], state, start)
        truth.index_append(part, 160, pending, blocks, BLOCK, k_norm, EPS, frequencies, position)
        np.testing.assert_allclose(blocks, state.blocks, **CLOSE)
        held = np.arange(stop // BLOCK * BLOCK, stop) % kept
        np.testing.assert_array_equal(pending[held], state.pending[: stop % BLOCK])

        query = np.full((rows, 8, 20), np.nan, np.float32)
        truth.index_queries(part, 0, q_norm, EPS, frequencies, position, query)
        want = indexer.queries(tokens[start:stop], rope.angles(torch.arange(start, stop)))
        np.testing.assert_allclose(query, want, **CLOSE)

        scores, chosen = np.full((rows, 8), np.nan, np.float32), np.empty((rows, BUDGET // BLOCK), np.int32)
        truth.index_scores_at(query, blocks, BLOCK, BUDGET // BLOCK, position, scores)
        truth.select_blocks_at(scores, BLOCK, position, chosen)
        for row, whole in enumerate((np.arange(start, stop) + 1) // BLOCK):
            assert np.isnan(scores[row, whole if whole > 3 else 0 :]).all()
            if whole > 3:
                line = indexer.scores(want[row : row + 1], state.blocks[:whole])
                np.testing.assert_allclose(scores[row : row + 1, :whole], line, **CLOSE)
                assert (chosen[row] == indexer.select(line, start + row).numpy()[0]).all()
            else:
                assert (chosen[row] == np.arange(3)).all()
        start = stop


HEADS, KV_HEADS, DIM = 6, 2, 24
QSA: Any = SimpleNamespace(**vars(INDEX), query_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM)


# a key may round to the next fp16; to another code it does not, at these numbers
@pytest.mark.parametrize(("kv", "limit"), [("fp32", 2e-5), ("fp16", 2e-3), ("int8", 2e-5), ("q4_0", 2e-5)])
@pytest.mark.parametrize("spans", [(1,) * 30, (8, 8, 8, 6), (3, 1, 7, 2, 8, 5, 4)], ids=str)
def test_attention(spans: tuple[int, ...], kv: str, limit: float) -> None:
    """A whole layer between its matrices, from reading all to reading three of seven blocks."""
    rng, width = np.random.default_rng(7), (2 * HEADS + 2 * KV_HEADS) * DIM
    x, q_norm, k_norm = (rng.standard_normal(shape).astype(np.float32) for shape in ((30, width + 180), (DIM,), (DIM,)))
    _, index_q_norm, index_k_norm, _, rope = index_parts(30)
    columns = {
        "attn_q.weight": slice(0, width),
        "attn_output.weight": slice(None),
        "indexer.q_proj.weight": slice(width, width + 160),
        "indexer.k_proj.weight": slice(width + 160, width + 180),
    }
    norms = {"attn_q_norm.weight": q_norm, "attn_k_norm.weight": k_norm}
    weights: Any = Columns(columns, norms | {"indexer.q_norm.weight": index_q_norm, "indexer.k_norm.weight": index_k_norm})
    layer = SelectedAttention(weights, QSA, rope)
    kept = [empty_cells(KV_FORMATS[kv], KV_HEADS, 32, DIM, Places()) for _ in range(2)]
    state = AttentionState(kept[0], kept[1], torch.zeros(8, 20), torch.zeros(BLOCK, 20))
    keys, values = (part.near.numpy().copy() for part in kept)
    pending, blocks, start, frequencies = np.zeros((BLOCK, 20), np.float32), np.zeros((8, 20), np.float32), 0, rope.frequencies.numpy()
    for rows in spans:
        part, position = x[start : start + rows], np.array([start])
        want = layer(torch.from_numpy(part), state, start)
        heads, index = np.ascontiguousarray(part[:, :width]), part[:, width:]
        query, asked = np.empty((rows, HEADS, DIM), np.float32), np.empty((rows, 8, 20), np.float32)
        scores, chosen = np.full((rows, 8), np.nan, np.float32), np.empty((rows, BUDGET // BLOCK), np.int32)
        out = np.empty((rows, HEADS * DIM), np.float32)
        truth.attention_inputs(heads, q_norm, k_norm, EPS, frequencies, position, query, keys, values)
        truth.index_append(index, 160, pending, blocks, BLOCK, index_k_norm, EPS, frequencies, position)
        truth.index_queries(index, 0, index_q_norm, EPS, frequencies, position, asked)
        truth.index_scores_at(asked, blocks, BLOCK, BUDGET // BLOCK, position, scores)
        truth.select_blocks_at(scores, BLOCK, position, chosen)
        truth.attention_decode(query, keys, values, chosen, heads, BLOCK, position, np.empty(0, np.float32), out)
        np.testing.assert_allclose(out, want, rtol=limit, atol=limit)
        start += rows
    held = [part[:, :30] for part in (keys, values)]
    if KV_FORMATS[kv].group:
        held = [decode(part.view(np.uint8), DIM, kv) for part in held]
    np.testing.assert_allclose(held[0], state.keys.first(30), rtol=1e-3 if kv == "fp16" else 2e-5, atol=2e-5)
    np.testing.assert_array_equal(held[1], state.values.first(30))
