"""Drafts in a plan: off unless stated, counted in the memory where the state lies, and what a person should know of them."""

from __future__ import annotations

import dataclasses

import pytest

from strata_recipes.config.choices import Draft, Sampler
from strata_recipes.config.schema import Decode, Experts
from strata_recipes.decide import build_plan, decide
from strata_recipes.machine.facts import Gpu
from strata_recipes.plan.budget import DRAFTED_ROWS, DRAFTS, EXPERT_ROWS, HISTORY, draft_parts
from strata_recipes.plan.plan import Decision, Plan
from strata_recipes.units import GiB
from tests.plan.cases import index_of, machine, planned, small_config, small_index

PACK = small_index()
CARD = Gpu("card", "8.6", GiB, GiB, 1e11, 1e12, 1e10)


def plan(decode: Decode, tokens: int = 100, gpu: Gpu | None = None) -> Plan:
    return build_plan(dataclasses.replace(small_config(), decode=decode), machine(gpu=gpu, available=GiB), PACK, tokens)


def decision(found: Plan) -> Decision:
    return next(one for one in found.decisions if one.name == "decode.draft")


def about_drafts(found: Plan) -> list[str]:
    return [note for note in found.notes if "decode.draft" in note]


def test_off_unless_stated() -> None:
    found = plan(Decode(max_new_tokens=50))
    assert (found.decode.draft, found.decode.draft_tokens) == ("none", 0)
    assert decision(found).value == "none" and decision(found).because.startswith("off unless stated")
    assert not about_drafts(found)
    assert not any(budget.part(name) for budget in (found.vram, found.ram) for name in (DRAFTS, DRAFTED_ROWS, HISTORY))


@pytest.mark.parametrize("sampler", list(Sampler))
@pytest.mark.parametrize(("asked", "tokens"), [("auto", 4), (1, 1), (7, 7)])
def test_as_stated_whatever_chooses_the_token(asked: int | str, tokens: int, sampler: Sampler) -> None:
    found = plan(Decode(sampler, 50, draft=Draft.suffix, draft_tokens=asked))
    assert (found.decode.draft, found.decode.draft_tokens) == ("suffix", tokens)
    assert f"up to {tokens} tokens" in decision(found).because
    assert any("predicted without drafts" in note for note in found.notes)


def test_what_the_real_model_keeps_by_hand() -> None:
    """One copy of the delta nets' states; a row's convolution inputs, n-gram history and raw index keys; and what it wrote."""
    parts = {part.name: part.num_bytes for part in draft_parts(index_of("qwen38_flash_next_q2_0").geometry, 4)}
    state, row = 36 * 48 * 128 * 128 * 4, 36 * 3 * 10_240 * 4 + 9 * 10_240 * 4 + 2 * 8 + 12 * 4 * 128 * 4
    assert parts[DRAFTS] == state + 4 * row
    written = 36 * (10_240 + 48 * 128 + 2 * 48) * 4
    kept = 4 * 2560 * 4 + (2 * 2560 + 4) * 4 + 10 * (8 * 8 + 2 * 4)
    assert parts[DRAFTED_ROWS] == 5 * (written + 248_320 * 4 + kept)


def test_the_memory_is_where_the_state_is() -> None:
    asked = Decode(max_new_tokens=50, draft=Draft.suffix)
    here, there = plan(asked), plan(asked, gpu=CARD)
    assert here.ram.part(DRAFTS) == there.vram.part(DRAFTS) > 0 and there.ram.part(DRAFTS) == 0
    assert here.ram.part(HISTORY) == there.ram.part(HISTORY) == 24 * here.kv.max_context
    assert there.vram_slots <= plan(Decode(max_new_tokens=50), gpu=CARD).vram_slots


def test_a_pass_of_a_short_prompt_has_room_at_the_experts() -> None:
    short, long = (plan(Decode(max_new_tokens=50, draft=Draft.suffix, draft_tokens=7), tokens).ram.part(EXPERT_ROWS) for tokens in (2, 8))
    assert short == long > plan(Decode(max_new_tokens=50), 2).ram.part(EXPERT_ROWS)


def test_a_file_tier_is_no_reason_to_refuse_but_one_to_say() -> None:
    asked = dataclasses.replace(small_config(), decode=Decode(max_new_tokens=50, draft=Draft.suffix))
    in_file = build_plan(dataclasses.replace(asked, experts=Experts(slots=0, ram_budget=0)), machine(gpu=None, available=GiB), PACK, 100)
    assert in_file.file_blobs == 96 and in_file.decode.draft == "suffix"
    assert any("96 experts in the file" in note and "73 to 77 % more experts a token" in note for note in in_file.notes)
    assert len(about_drafts(build_plan(asked, machine(gpu=None, available=GiB), PACK, 100))) == 1


@pytest.mark.parametrize(("new", "said"), [(0, True), (2, True), (3, False)])
def test_a_reply_with_no_room_for_a_guess_says_so(new: int, said: bool) -> None:
    notes = about_drafts(plan(Decode(max_new_tokens=new, draft=Draft.suffix)))
    assert any("has nothing to guess" in note for note in notes) == said and any("predicted without" in note for note in notes) != said


def test_the_prediction_is_that_without_drafts() -> None:
    config = dataclasses.replace(small_config(), decode=Decode(max_new_tokens=50, draft=Draft.suffix))
    load = decide(config, machine(gpu=None, available=GiB), PACK, 100).load.reply
    assert (load.drafted, load.tokens_a_round) == (1, 1.0)


def test_drafts_fit_beside_the_real_model_on_a_laptop() -> None:
    assert planned("hardware=rtx3060_6gb workload=prompt_7k4 decode.draft=suffix kv=fp16").vram.part(DRAFTS) < 0.14 * GiB
