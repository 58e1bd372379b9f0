"""What a sequence keeps: its bytes are the plan's, its formats and its length are held."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from strata_recipes.errors import ConfigError, ModelError
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.plan.budget import state_bytes


@pytest.mark.parametrize("kv", ["fp32", "fp16", "int8", "q4_0"])
@pytest.mark.parametrize("max_context", [1, 4, 1021, 1024])
@pytest.mark.parametrize(
    "changes",
    [{}, {"ngram_layers": ()}, {"ngram_layers": (1, 2)}, {"attention_interval": 2, "index_block": 8}, {"head_dim": 24}, {"head_dim": 72}],
    ids=str,
)
def test_bytes_equal_the_plans(small: Any, kv: str, max_context: int, changes: dict[str, Any]) -> None:
    g = dataclasses.replace(small[1].index.geometry, **changes)
    assert SequenceState(g, kv, max_context).num_bytes == state_bytes(g, kv, max_context)


@pytest.mark.parametrize("kv", ["fp16", "q4_0"])
@pytest.mark.parametrize("name", ["tiny-q2_0", "storyteller"])
def test_bytes_of_the_reference_models_equal_the_plans(opened: Any, name: str, kv: str) -> None:
    g = opened(name).index.geometry
    assert SequenceState(g, kv, 4096).num_bytes == state_bytes(g, kv, 4096)


def test_an_unknown_format_is_refused(small: Any) -> None:
    with pytest.raises(ConfigError, match="kv=fp8 is not one of fp32, fp16, int8, q4_0"):
        Qwen4Exp(small[1], "f32", "fp8", 64, 1)


def test_a_sequence_past_its_context_is_refused_and_a_full_one_is_not(small: Any) -> None:
    model = Qwen4Exp(small[1], "f32", "fp32", 8, 1)
    ids, state = np.arange(8), model.new_state()
    model.mixer(0, model.embed(ids), ids, state, 0)
    with pytest.raises(ModelError, match="tokens 8 to 9 of the sequence pass its context of 8 tokens"):
        model.mixer(0, model.embed(ids[:1]), ids[:1], state, 8)


def test_layers_count_their_own_tokens(small: Any) -> None:
    model = Qwen4Exp(small[1], "f32", "fp32", 64, 1)
    ids, state = np.arange(6), model.new_state()
    for layer in range(4):
        assert state.num_tokens == 0
        model.mixer(layer, model.embed(ids), ids, state, 0)
    assert state.num_tokens == 6
    with pytest.raises(AssertionError, match="layer 2 has read 6 tokens, the span starts at 5"):
        model.mixer(2, model.embed(ids), ids, state, 5)


def test_a_sequence_that_begins_anew_has_no_writes_of_the_last_one(small: Any) -> None:
    """A reply that drafted ends with those of its last pass; a prompt, whose tokens come together, could not be written so."""
    model = Qwen4Exp(small[1], "f32", "fp32", 64, 1)
    state = model.new_state()
    state.delta_writes = {layer: [] for layer in state.delta}
    state.reset()
    ids = np.arange(8)
    for layer in range(model.geometry.num_layers):
        model.mixer(layer, model.embed(ids), ids, state, 0)
    assert state.num_tokens == 8


def test_a_shared_state_is_one_layers_of_each_kind(small: Any) -> None:
    whole, shared = (SequenceState(small[1].index.geometry, "fp16", 64, shared=one) for one in (False, True))
    assert set(shared.attention) == set(whole.attention) and set(shared.delta) == set(whole.delta)
    assert len({id(at) for at in (*shared.attention.values(), *shared.delta.values())}) == 2


@pytest.mark.parametrize(("interval", "attention", "delta"), [(1, 4, 0), (5, 0, 4)])
def test_a_shared_state_of_one_kind_of_layers(small: Any, interval: int, attention: int, delta: int) -> None:
    g = dataclasses.replace(small[1].index.geometry, attention_interval=interval)
    shared = SequenceState(g, "fp16", 64, shared=True)
    assert (g.num_layers, len(shared.attention), len(shared.delta)) == (4, attention, delta)
