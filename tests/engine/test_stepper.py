"""A pass over several tokens gives the bits of single steps, and what it takes back was never there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from strata_recipes.engine.decode import Limits, decode
from strata_recipes.engine.session import Session
from strata_recipes.engine.stepper import MOST_ROWS, WalkStepper
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.snapshots import Snapshots
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.budget import DRAFTS, draft_parts
from tests.engine.guessing import Guesser
from tests.engine.plans import oracle, plan_for

IDS = oracle("tiny-q2_0.mid")["ids"]
NEXT = [int(token) for token in IDS[60:68]]
Make = Callable[[int], tuple[WalkStepper, SequenceState]]


@pytest.fixture
def make(tiny: Pack) -> Iterator[Make]:
    """A stepper over the first so many tokens of the text."""
    with Session(plan_for(tiny, prompt=60, new=64, chunk=16), tiny) as session:

        def after(num_tokens: int) -> tuple[WalkStepper, SequenceState]:
            session.prompt(IDS[:num_tokens])
            state = session._state
            assert state is not None
            model, experts = session._ready()
            return WalkStepper(model, experts, session.started.tiers, state, Snapshots(state, MOST_ROWS - 1)), state

        yield after


def seen(state: SequenceState, block: int) -> list[bytes]:
    """Everything that a later token can read."""
    count, parts = state.num_tokens, []
    for attention in state.attention.values():
        parts += [attention.keys.near[:, :count], attention.values.near[:, :count]]  # all lie there
        parts += [attention.blocks[: count // block], attention.pending[: count % block]]
    parts += [part for delta in state.delta.values() for part in (delta.conv, delta.delta)]
    parts += [part for ngram in state.ngram.values() for part in (ngram.history, ngram.conv)]
    return [part.contiguous().numpy().tobytes() for part in parts]


@pytest.mark.parametrize(("prompt", "rows"), [(1, 2), (2, 5), (41, MOST_ROWS), (60, 3), (59, 1)])
def test_a_pass_is_bit_equal_to_single_steps_and_so_is_what_is_left_of_it(prompt: int, rows: int, make: Make, tiny: Pack) -> None:
    """For every number of rows that stay: the state, all that a later token reads of it; and the next logits."""
    block = tiny.index.geometry.index_block
    plain, state = make(prompt)
    logits, states = [], []
    for token in NEXT[:rows]:
        logits.append(plain.step([token])[0].tobytes())
        states.append(seen(state, block))
    for kept in range(1, rows + 1):
        stepper, state = make(prompt)
        found = stepper.step(NEXT[:rows])
        assert [row.tobytes() for row in found] == logits
        stepper.keep_only(kept)
        assert state.num_tokens == prompt + kept and seen(state, block) == states[kept - 1]
        again = stepper.step(NEXT[kept:rows]) if kept < rows else found[:0]  # over what was written too early
        assert [row.tobytes() for row in again] == logits[kept:]
        assert seen(state, block) == states[-1]


def test_whatever_is_guessed_the_reply_and_the_state_are_those_of_plain_decode(make: Make, tiny: Pack) -> None:
    def best(row: np.ndarray) -> int:
        return int(np.argmax(row))

    def written(drafter: Any, stepper: WalkStepper) -> Any:
        told: list[int] = []
        result = decode(lambda: stepper, first, best, Limits(40, 60, ()), drafter=drafter, on_token=told.append)
        assert tuple(told) == result.tokens
        return result

    stepper, state = make(60)
    first = stepper.step([NEXT[0]])[0]
    wanted = written(None, stepper)
    left = seen(state, tiny.index.geometry.index_block)
    for most in range(1, MOST_ROWS):
        stepper, state = make(60)
        assert stepper.step([NEXT[0]])[0].tobytes() == first.tobytes()
        found = written(Guesser(wanted.tokens, most, tiny.index.geometry.vocab), stepper)
        assert found.tokens == wanted.tokens and seen(state, tiny.index.geometry.index_block) == left
        assert 0 < found.figures.accepted < found.figures.drafted
        assert found.figures.steps + found.figures.accepted == len(wanted.tokens) - 1 == wanted.figures.steps


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_snapshots_take_what_the_plan_counts(rows: int, make: Make, tiny: Pack) -> None:
    _, state = make(9)
    counted = {part.name: part.num_bytes for part in draft_parts(tiny.index.geometry, rows)}
    snapshots = Snapshots(state, rows)
    assert snapshots.num_bytes == counted[DRAFTS]
    deltas = sum(at.delta.nbytes for at in state.delta.values())
    cells = sum(at.keys.num_bytes + at.values.num_bytes + at.blocks.nbytes for at in state.attention.values())
    assert snapshots.num_bytes == deltas + rows * (state.num_bytes - cells - deltas)
