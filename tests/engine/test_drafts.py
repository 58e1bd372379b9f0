"""What is guessed: the longest earlier match, against a search by brute force. What is written: plain decode's tokens."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from strata_recipes.engine.decode import DecodeResult, Stop
from strata_recipes.engine.drafts import SHORTEST_MATCH, SuffixDrafter, earlier_match
from strata_recipes.engine.session import Session
from strata_recipes.errors import DeviceError
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.budget import DRAFTS, HISTORY_BYTES
from strata_recipes.plan.plan import DecodePlan, Plan
from tests.engine.guessing import Guesser
from tests.engine.plans import oracle, plan_for

GREEDY = oracle("tiny-q2_0.greedy")


@pytest.fixture
def without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search ends at a length that only keeps it short: here texts are."""
    monkeypatch.setattr("strata_recipes.engine.drafts.LONGEST_MATCH", 1000)


def matching(ids: list[int], at: int) -> int:
    """How many ids before `at` are the last ids, one by one."""
    length = 0
    while length < at and ids[at - 1 - length] == ids[-1 - length]:
        length += 1
    return length


def by_brute_force(ids: list[int]) -> int | None:
    lengths = [(matching(ids, at), at) for at in range(1, len(ids))]
    longest, at = max(lengths, default=(0, 0))
    return at if longest >= SHORTEST_MATCH else None


FEW, SOME = st.lists(st.integers(0, 3), max_size=9), st.lists(st.integers(0, 50), max_size=90)
TEXTS = st.one_of(
    st.lists(st.integers(0, 2), max_size=60),
    st.lists(st.integers(0, 9), max_size=200),
    st.builds(lambda part, times, tail: part * times + tail, FEW, st.integers(0, 30), FEW),
    st.builds(lambda part, between: part + between + part, SOME, FEW),
)


@pytest.mark.usefixtures("without_end")
@settings(max_examples=300, deadline=None)
@given(TEXTS)
@example([])
@example([7] * 3)
@example([7] * 4)
@example([7] * 100)
@example([1, 2, 3, 1, 2, 3])
@example([0, 1, 2, 3, 9, 1, 2, 3, 8, 0, 1, 2, 3])
def test_the_match_is_the_longest_and_of_these_the_latest(ids: list[int]) -> None:
    assert earlier_match(np.array(ids, np.int32)) == by_brute_force(ids)


@pytest.mark.usefixtures("without_end")
@settings(max_examples=100, deadline=None)
@given(TEXTS, st.integers(0, 60), st.integers(1, 7), st.integers(1, 9), st.randoms(use_true_random=False))
def test_a_guess_is_what_followed_and_goes_round_at_the_end(ids: list[int], cut: int, most: int, count: int, random: Random) -> None:
    """However the ids came, in the prompt or token by token, and whenever it was asked before."""
    cut = min(cut, len(ids))
    drafter = SuffixDrafter(np.array(ids[:cut], np.int64), len(ids) - cut, most)
    for token in ids[cut:]:
        if random.random() < 0.5:
            drafter.draft(count)
        drafter.add(token)
    whole, at = list(ids), by_brute_force(ids)
    if at is not None:
        for _ in range(min(most, count)):
            whole.append(whole[at + len(whole) - len(ids)])
    assert drafter.draft(count) == whole[len(ids) :]


def test_a_search_takes_what_the_plan_counts_where_everything_matches() -> None:
    ids = np.zeros(40_000, np.int32)
    tracemalloc.start()
    try:
        assert earlier_match(ids) == ids.size - 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 13 * ids.size < ids.nbytes + peak < HISTORY_BYTES * ids.size + 10_000


def test_a_search_ends_at_its_longest_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two matches that are both as long as it looks, the latest."""
    monkeypatch.setattr("strata_recipes.engine.drafts.LONGEST_MATCH", 4)
    assert earlier_match(np.array([0, 1, 2, 3, 4, 9, 1, 2, 3, 4, 8, 0, 1, 2, 3, 4], np.int32)) == 10
    monkeypatch.setattr("strata_recipes.engine.drafts.LONGEST_MATCH", 5)
    assert earlier_match(np.array([0, 1, 2, 3, 4, 9, 1, 2, 3, 4, 8, 0, 1, 2, 3, 4], np.int32)) == 5


def drafting(plan: Plan, **changes: Any) -> Plan:
    """The same for a reply that nothing ends early, or as stated."""
    return dataclasses.replace(plan, decode=dataclasses.replace(plan.decode, **{"stop_at_eos": False, **changes}))


def generated(plan: Plan, pack: Pack, ids: Any) -> DecodeResult:
    """A whole reply; each of its tokens was told once, in order."""
    told: list[int] = []
    with Session(plan, pack, poison=True) as session:
        session.prompt(ids)
        result = session.generate(on_token=told.append)
        use = session.ledger.use()
    assert tuple(told) == result.tokens
    assert use.ram.peak_bytes <= use.ram.limit_bytes and use.vram.peak_bytes <= use.vram.limit_bytes
    return result


@pytest.fixture
def guessing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A random model repeats nothing, so its guesses come from one who knows the reply."""

    def use(truth: Sequence[int], **more: bool) -> None:
        def drafter(plan: DecodePlan, prompt: NDArray[Any], room: int) -> Guesser:
            return Guesser(truth, plan.draft_tokens, 512, **more)

        monkeypatch.setattr("strata_recipes.engine.session.drafter_for", drafter)

    return use


PLACES: list[dict[str, Any]] = [
    dict(mode="full_arena", slots=17), dict(mode="resident", slots=96), dict(mode="resident", slots=0, kv="fp16"),
    dict(mode="budget", slots=9, ram_budget=30 * 13824), dict(mode="mapped", slots=0, file_io="buffered"),
    dict(mode="mapped", slots=20, file_io="direct", order="layer_major", chunk=16),
    dict(mode="budget", slots=0, ram_budget=30 * 13824, file_io="direct"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "most"), list(zip(PLACES, range(1, 8), strict=True)))
def test_every_tier_mode_and_length_of_a_guess_writes_the_oracles_tokens(
    place: dict[str, Any], most: int, tiny: Pack, guessing: Callable[..., None]
) -> None:
    truth = tuple(GREEDY["tokens"].tolist())
    guessing(truth)
    result = generated(drafting(plan_for(tiny, prompt=40, new=48, draft="suffix", draft_tokens=most, **place)), tiny, GREEDY["ids"])
    figures, g = result.figures, tiny.index.geometry
    assert result.tokens == truth
    assert 0 < figures.accepted < figures.drafted <= most * figures.steps
    assert figures.steps == len(truth) - 1 - figures.accepted
    a_pass = g.num_layers * g.top_k
    asked = figures.vram_hits + figures.ram_hits + figures.file_hits
    assert figures.steps * a_pass <= asked < (figures.steps + figures.drafted) * a_pass  # an expert once, however many rows chose it


def test_layers_of_many_formats_write_the_oracles_tokens(mixed: Pack, guessing: Callable[..., None]) -> None:
    stored = oracle("tiny-mixed.greedy")
    guessing(stored["tokens"].tolist())
    result = generated(drafting(plan_for(mixed, mode="mapped", slots=31, draft="suffix")), mixed, stored["ids"])
    assert result.tokens == tuple(stored["tokens"]) and result.figures.accepted > 9


@pytest.mark.parametrize("arithmetic", ["bf16", "f16", "q8"])
def test_narrower_arithmetic_rounds_a_row_alone(arithmetic: str, tiny: Pack, guessing: Callable[..., None]) -> None:
    plain = generated(drafting(plan_for(tiny, new=24, arithmetic=arithmetic)), tiny, GREEDY["ids"])
    guessing([*plain.tokens, *range(9)])
    found = generated(drafting(plan_for(tiny, new=24, arithmetic=arithmetic, draft="suffix", draft_tokens=6)), tiny, GREEDY["ids"])
    assert found.tokens == plain.tokens and 0 < found.figures.accepted < found.figures.drafted


@pytest.mark.parametrize("part", ["p0", "p1", "p2"])
def test_a_story_repeats_itself_and_is_the_oracles(part: str, story: Pack) -> None:
    """With guesses from its own text."""
    stored = oracle(f"storyteller.{part}")
    plan = plan_for(story, prompt=stored["ids"].size, new=stored["tokens"].size, draft="suffix")
    result = generated(drafting(plan), story, stored["ids"])
    assert result.tokens == tuple(stored["tokens"])
    assert result.figures.steps + result.figures.accepted == result.figures.tokens - 1
    assert (result.figures.accepted > 0) == (part != "p2")  # 19 tokens


def test_a_sampled_reply_draws_the_same(tiny: Pack, guessing: Callable[..., None]) -> None:
    words = dict(sampler="sample", temperature=0.8, top_k=40, top_p=0.9, seed=5)
    plain = generated(drafting(plan_for(tiny), **words), tiny, GREEDY["ids"])
    assert plain.tokens != tuple(GREEDY["tokens"])
    guessing(plain.tokens)
    drafted = generated(drafting(plan_for(tiny, draft="suffix", draft_tokens=7), **words), tiny, GREEDY["ids"])
    assert drafted.tokens == plain.tokens and 0 < drafted.figures.accepted < drafted.figures.drafted


@pytest.mark.parametrize("spoilt", [False, True])
@pytest.mark.parametrize("new", [1, 2, 3, 4, 9, 10, 17])
def test_a_reply_is_as_long_as_it_may_be_and_nothing_is_read_beyond(
    new: int, spoilt: bool, tiny: Pack, guessing: Callable[..., None]
) -> None:
    """However the limit falls into a pass."""
    guessing(GREEDY["tokens"].tolist(), spoilt=spoilt)
    result = generated(drafting(plan_for(tiny, new=new, draft="suffix", draft_tokens=7)), tiny, GREEDY["ids"])
    assert (result.tokens, result.stop) == (tuple(GREEDY["tokens"][:new]), Stop.max_new_tokens)
    if not spoilt:
        assert result.figures.steps == -(-(new - 1) // 8)  # a pass of 8 rows gives 8 tokens
        assert result.figures.accepted == result.figures.drafted


@pytest.mark.parametrize("room", [1, 2, 6, 8, 9, 11])
def test_the_context_ends_inside_a_pass(room: int, tiny: Pack, guessing: Callable[..., None]) -> None:
    plan = plan_for(tiny, prompt=512 - room, new=room)
    assert plan.kv.max_context == 512
    ids = np.resize(GREEDY["ids"], 512 - room)

    def written(draft: str) -> DecodeResult:
        with Session(drafting(plan_for(tiny, prompt=ids.size, new=room, draft=draft, draft_tokens="auto")), tiny, poison=True) as session:
            session.prompt(ids)
            return session.generate(max_new_tokens=99)

    plain = written("none")
    guessing([*plain.tokens, *range(9)], spoilt=False)
    found = written("suffix")
    assert (found.tokens, found.stop) == (plain.tokens, Stop.context) and len(found.tokens) == room


@pytest.mark.parametrize("end", range(1, 12))
def test_an_end_of_text_inside_a_right_guess_ends_the_reply(end: int, tiny: Pack, guessing: Callable[..., None]) -> None:
    truth = GREEDY["tokens"].tolist()
    guessing(truth, spoilt=False)
    tiny.eos_token_ids = (truth[end],)
    plan = drafting(plan_for(tiny, new=30, draft="suffix", draft_tokens=7), stop_at_eos=True)
    result = generated(plan, tiny, GREEDY["ids"])
    assert (result.stop, result.tokens) == (Stop.eos, tuple(truth[: truth.index(truth[end]) + 1]))


def test_a_plan_that_counts_less_than_drafts_take_is_refused(tiny: Pack) -> None:
    plan = plan_for(tiny, draft="suffix", draft_tokens=3)
    counted = plan.ram.part(DRAFTS)
    assert counted > 0 and plan_for(tiny).ram.part(DRAFTS) == 0
    with Session(drafting(plan, draft_tokens=4), tiny) as session:
        session.prompt(GREEDY["ids"])
        with pytest.raises(DeviceError, match=rf"drafts take \d+ bytes of states, the plan counted {counted}: plan again"):
            session.generate()
