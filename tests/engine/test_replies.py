"""A reply's first token waits for nothing: kernels, dense weights that move and a card's memory come after it. What is refused is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from strata_recipes.engine.card_replies import CardReplies
from strata_recipes.engine.decode import Stop
from strata_recipes.engine.replies import Replies
from strata_recipes.engine.session import Session
from strata_recipes.engine.stepper import WalkStepper
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.budget import max_stride
from tests.engine.plans import oracle, plan_for

GREEDY = oracle("tiny-q2_0.greedy")


class Warm:
    """Kernels that are compiled for 3 s after they were asked for, on a clock of its own; a token takes a quarter."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self._now = 0.0

    def perf_counter(self) -> float:
        return self._now

    def wait_all(self) -> None:
        self._now += 3
        self.said.append("compiled")

    def told(self, token: int) -> None:
        self._now += 0.25
        self.said.append(token)


@pytest.mark.parametrize("new", [1, 5])
def test_the_first_token_is_out_before_anything_is_waited_for(new: int, tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    warm = Warm()
    said = warm.said
    monkeypatch.setattr("strata_recipes.engine.decode.time", warm)
    for name in ("prompt_starts", "reply_starts"):
        monkeypatch.setattr(Qwen4Exp, name, lambda model, name=name: said.append(name))
    with Session(plan_for(tiny, prompt=GREEDY["ids"].size, new=new), tiny) as session:
        assert session._replies is not None
        monkeypatch.setattr(session._replies, "_warm", warm)
        session.prompt(GREEDY["ids"])
        result = session.generate(on_token=warm.told)
    figures, tokens = result.figures, GREEDY["tokens"][:new].tolist()
    if new == 1:
        assert (said, result.stop, figures.wait_s) == (["prompt_starts", *tokens], Stop.max_new_tokens, None)
        assert (figures.steps, figures.vram_hits + figures.ram_hits + figures.file_hits, figures.tokens_per_s) == (0, 0, None)
        return
    assert said == ["prompt_starts", tokens[0], "compiled", "reply_starts", *tokens[1:]]
    assert (figures.wait_s, figures.seconds, figures.tokens_per_s, figures.fallback) == (3.0, 1.25, 3.2, None)


def test_look_ups_of_the_wait_are_no_reply_s(tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters begin with the first pass."""
    with Session(plan_for(tiny, prompt=GREEDY["ids"].size, new=3), tiny) as session:
        session.prompt(GREEDY["ids"])
        assert session._replies is not None
        tiers, real = session.started.tiers, session._replies.stepper

        def counting(state: Any) -> Any:
            tiers.counters.ram_hits += 10**6
            return real(state)

        monkeypatch.setattr(session._replies, "stepper", counting)
        figures = session.generate().figures
    g = tiny.index.geometry
    assert figures.vram_hits + figures.ram_hits + figures.file_hits == 2 * g.num_layers * g.top_k


class Locks:
    """A system that page-locks nothing, or nothing that its card reaches."""

    def __init__(self, locks: bool) -> None:
        self._locks = locks

    def lock(self, view: Any) -> bool:
        return self._locks

    def unlock(self, view: Any) -> None: ...

    def card_address(self, view: Any) -> int:
        return 0


@pytest.mark.parametrize("locks", [False, True])
def test_ram_that_a_card_does_not_reach_is_told_and_recorded(locks: bool, tiny: Pack) -> None:
    notes: list[str] = []
    card: Any = SimpleNamespace(locks=Locks(locks), note=notes.append)
    with Session(plan_for(tiny, mode="mapped", slots=0, new=9, file_io="buffered", prompt=GREEDY["ids"].size), tiny) as session:
        tiers, (model, experts) = session.started.tiers, session._ready()
        experts.idle_memory = torch.empty(0, dtype=torch.uint8)  # type: ignore[attr-defined]  # as those of a card have
        session._replies = replies = Replies(session.plan, tiny.index, model, experts, tiers, card, None, None)
        for _ in range(2):
            session.prompt(GREEDY["ids"])
            result = session.generate()
            assert result.tokens == tuple(GREEDY["tokens"][:9])
        replies.close()
    wanted = f"{tiny.index.geometry.top_k * max_stride(tiny.index):,} bytes of RAM"
    assert len(notes) == 1 and "slower and summed in another order" in notes[0] and wanted in notes[0]
    assert result.figures.fallback is not None and result.figures.fallback in notes[0]


def test_where_every_expert_has_an_address_nothing_need_be_reached(tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SimpleNamespace(whole=True, in_vram=torch.ones(2).bool())
    monkeypatch.setattr("strata_recipes.engine.card_replies.AddressTable", lambda tiers, device: whole)
    plan, model, locks = plan_for(tiny), SimpleNamespace(device=torch.device("cpu")), Locks(False)
    nothing: Any = None
    replies = CardReplies(plan, tiny.index, model, nothing, locks, torch.empty(0, dtype=torch.uint8), None)  # type: ignore[arg-type]
    assert replies.refused is None
    replies.close()


def test_a_card_that_has_no_room_leaves_no_lock_behind(tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*words: Any) -> Any:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    some: Any = SimpleNamespace(whole=False, in_vram=torch.zeros(2).bool())
    taken: list[int] = []
    monkeypatch.setattr("strata_recipes.engine.card_replies.AddressTable", lambda tiers, device: some)
    monkeypatch.setattr("strata_recipes.engine.card_replies.gather_room", refused)
    monkeypatch.setattr(Locks, "lock", lambda self, view: taken.append(view.size) or True)
    plan, model, nothing = plan_for(tiny), SimpleNamespace(device=torch.device("cpu")), None
    with pytest.raises(torch.cuda.OutOfMemoryError):
        CardReplies(plan, tiny.index, model, nothing, Locks(True), torch.empty(0, dtype=torch.uint8), None)  # type: ignore[arg-type]
    assert taken == []


def test_a_walk_that_was_planned_is_no_fallback(tiny: Pack) -> None:
    with Session(plan_for(tiny, prompt=20, new=4), tiny) as session:
        session.prompt(GREEDY["ids"][:20])
        assert session._replies is not None and session._state is not None
        stepper = session._replies.stepper(session._state)
    assert isinstance(stepper, WalkStepper) and stepper.fallback is None
