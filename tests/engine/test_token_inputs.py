"""What a pass takes from the host and leaves there: in one piece of memory that the plan counts, whatever its number of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from strata_recipes.engine.token_inputs import TokenInputs
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.model.reply_buffers import ReplyBuffers, host_memory
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.budget import REPLY_ENDS
from strata_recipes.plan.reply_rows import host_bytes
from tests.engine.plans import WITH_CARD, plan_for
from tests.plan.cases import index_of

CPU = torch.device("cpu")


def test_what_a_pass_put_and_left_is_there_in_whole(tiny: Pack) -> None:
    """One set of ends after the other in the same bytes: a pass of five rows, of two, of five again."""
    model, g = Qwen4Exp(tiny, "f32", "fp32", 64, 2), tiny.index.geometry
    memory, room = host_memory(g, 5, CPU), ReplyBuffers(g, 5, 64, CPU)
    sets = {rows: TokenInputs(model, ReplyBuffers(g, rows, 64, CPU, room), memory) for rows in (2, 5)}
    state, rng = model.new_state(64), np.random.default_rng(3)
    for rows in (5, 2, 5):
        at, ids, inputs = state.num_tokens, rng.integers(0, g.vocab, rows), sets[rows]
        histories = {layer: ngram.history.clone() for layer, ngram in state.ngram.items()}
        inputs.put(ids, state)
        inputs.send()
        buffers: Any = inputs._b
        assert state.num_tokens == at + rows and buffers["position"].tolist() == [at]
        assert torch.equal(buffers["embedding"], model.embedding(ids))
        for layer, before in histories.items():
            state_before: Any = type("Before", (), {"history": before})()
            ngram = model.layers[layer].ngram
            assert ngram is not None and torch.equal(buffers[f"ngram_{layer}"], ngram.rows(torch.from_numpy(ids), state_before))
        for name, wanted in (("logits", torch.randn(rows, g.vocab)), ("routed", torch.arange(g.num_layers * rows * g.top_k))):
            buffers[name].copy_(wanted.view_as(buffers[name]))
        buffers["nans"].zero_()
        for name in ("logits", "nans", "routed"):
            inputs.bring(name)
        inputs.refuse_nan(at)
        assert inputs.logits.tobytes() == buffers["logits"].numpy().tobytes()
        assert inputs.routed.tobytes() == buffers["routed"].numpy().tobytes() and inputs.routed.shape == (g.num_layers, rows, g.top_k)


@pytest.mark.parametrize("drafts", [0, 1, 7])
def test_the_plan_counts_what_is_allocated(drafts: int, tiny: Pack) -> None:
    more = {"draft": "suffix", "draft_tokens": drafts} if drafts else {}
    plan = plan_for(tiny, machine=WITH_CARD, **more)
    assert plan.ram.part(REPLY_ENDS) == host_memory(tiny.index.geometry, drafts + 1, CPU).numel()
    assert plan_for(tiny, **more).ram.part(REPLY_ENDS) == 0  # without a card


def test_of_the_real_model_by_hand() -> None:
    """Embedding, n-gram rows, logits and choices of 8 rows, a position and a count: in the next power of two."""
    g = index_of("qwen38_flash_next_q2_0").geometry
    ngrams = len(g.ngram_layers) * (g.ngram_size - 1) * g.ngram_heads * g.ngram_width
    values = 8 * (2560 + ngrams + 248_320 + 48 * 10)
    assert math.log2(host_bytes(g, 8)).is_integer()
    assert 4 * values < host_bytes(g, 8) == 1 << (4 * values + 2 * 256).bit_length() < 17 << 20
