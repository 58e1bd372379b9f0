"""Attention over all and over selected tokens, and the selection itself, each against its plain definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from strata_recipes.model import qsa
from strata_recipes.model.indexer import Indexer
from strata_recipes.model.kv_cache import AttentionState, SequenceState
from strata_recipes.model.kv_cells import Cells, kv_format
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.model.rope import Rope
from strata_recipes.model.weights import Weights
from tests.model.drive import distance, logits
from tests.model.test_oracle import ids_with_ends

KV_HEADS, GROUP, DIM, BLOCK = 2, 3, 8, 4


def state_of(tokens: int, dtype: torch.dtype = torch.float32) -> AttentionState:
    make = torch.Generator().manual_seed(4)
    keys, values = (torch.randn(KV_HEADS, tokens, DIM, generator=make).to(dtype) for _ in range(2))
    form = kv_format("fp32" if dtype is torch.float32 else "fp16")
    return AttentionState(Cells(form, DIM, keys), Cells(form, DIM, values), torch.empty(0), torch.empty(0))


def plain(query: torch.Tensor, state: AttentionState, seen: np.ndarray) -> np.ndarray:
    """Softmax attention in float64 of query [K, T, G, D] over the tokens that `seen` [T, n] allows."""
    q, k, v = (part.double().numpy() for part in (query, state.keys.near, state.values.near))
    scores = np.where(seen[None, :, None], np.einsum("ktgd,knd->ktgn", q, k[:, : seen.shape[1]]), -np.inf)
    share = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("ktgn,knd->ktgd", share / share.sum(-1, keepdims=True), v[:, : seen.shape[1]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_reading_all(dtype: torch.dtype) -> None:
    state, start, stop = state_of(40, dtype), 10, 33
    query = torch.randn(KV_HEADS, stop - start, GROUP, DIM, generator=torch.Generator().manual_seed(5))
    seen = np.arange(stop) <= np.arange(start, stop)[:, None]
    np.testing.assert_allclose(qsa.read_all(query, state, start), plain(query, state, seen), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("start", [24, 25, 26, 27])
def test_reading_selected(start: int) -> None:
    """Every offset of the first query in its block: the tail after the last whole block has 1, 2, 3 and 0 tokens."""
    state, positions = state_of(40), torch.arange(start, start + 6)
    chosen = torch.tensor([[0, 2, 5], [1, 3, 4], [0, 1, 2], [3, 4, 5], [0, 4, 5], [2, 3, 4]])
    tokens, hidden = qsa._tokens(chosen, positions, BLOCK)
    seen = np.zeros((6, 40), bool)
    for row, position in enumerate(positions.tolist()):
        for block in chosen[row].tolist():
            seen[row, block * BLOCK : (block + 1) * BLOCK] = True
        seen[row, (position + 1) // BLOCK * BLOCK : position + 1] = True
        read = sorted(t for t, h in zip(tokens[row].tolist(), hidden[row].tolist(), strict=True) if not h)
        assert read == np.flatnonzero(seen[row]).tolist()
    query = torch.randn(KV_HEADS, 6, GROUP, DIM, generator=torch.Generator().manual_seed(6))
    np.testing.assert_allclose(qsa.read_tokens(query, state, tokens, hidden), plain(query, state, seen), rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def indexer(small: Any) -> Indexer:
    pack = small[1]
    g = pack.index.geometry
    return Indexer(Weights(pack, "f32").layer(3), g, Rope(g.rotary_dim, g.rope_base))


def test_selection_takes_the_best_whole_blocks_of_each_query(indexer: Indexer) -> None:
    start, rows = 61, 30
    scores = torch.rand(rows, (start + rows) // BLOCK, generator=torch.Generator().manual_seed(7))
    got = indexer.select(scores, start).numpy()
    for row, line in enumerate(scores.numpy()):
        whole = (start + row + 1) // BLOCK
        want = np.sort(np.argsort(-line[:whole])[: indexer.num_selected])
        np.testing.assert_array_equal(got[row], want)


def test_equal_scores_are_settled_as_the_reference_does(indexer: Indexer) -> None:
    """Blocks that no index head likes score exactly 0 and are many; the reference ranks each query alone."""
    scores = torch.relu(torch.randn(50, 40, generator=torch.Generator().manual_seed(8)) - 1)
    got = indexer.select(scores, 110)
    for row, line in enumerate(scores):
        want = line[: (110 + row + 1) // BLOCK].topk(indexer.num_selected).indices.sort().values
        assert got[row].tolist() == want.tolist()


@pytest.mark.parametrize("cuts", [[50], [1] * 50, [3, 4, 1, 30, 12], [47, 3]])
def test_index_keys_do_not_depend_on_where_spans_are_cut(indexer: Indexer, small: Any, cuts: list[int]) -> None:
    g = small[1].index.geometry
    x = torch.randn(50, g.hidden, generator=torch.Generator().manual_seed(9))
    states, start = [SequenceState(g, "fp32", 64).attention[3] for _ in range(2)], 0
    indexer.append(x, states[0], 0)
    for count in cuts:
        indexer.append(x[start : start + count], states[1], start)
        start += count
    torch.testing.assert_close(states[1].blocks[:12], states[0].blocks[:12], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(states[1].pending[:2], states[0].pending[:2], rtol=1e-5, atol=1e-5)


def test_tiles_bound_memory_and_change_nothing(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for 64 KiB a tile no gather of keys and values takes more, and the logits stay."""
    pack, ids = small[1], ids_with_ends(200, 96)
    model = Qwen4Exp(pack, "f32", "fp32", 256, 1)
    whole = logits(model, pack, pack, ids, 1 << 20)[0]
    sizes, read = [], qsa.read_tokens

    def watched(query: torch.Tensor, state: AttentionState, tokens: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        sizes.append(2 * 4 * tokens.numel() * state.keys.near.shape[0] * state.keys.dim)
        return read(query, state, tokens, hidden)

    monkeypatch.setattr(qsa, "read_tokens", watched)
    monkeypatch.setattr(qsa, "_TILE_BYTES", {"cpu": 1 << 16})
    tiled = logits(model, pack, pack, ids, 1 << 20)[0]
    assert len(sizes) > 20 and max(sizes) <= 1 << 16
    assert distance(tiled, whole) <= 1e-5
