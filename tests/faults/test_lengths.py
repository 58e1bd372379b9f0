"""Prompts and replies of every length at the edges of chunks, super-chunks and the context, against token-by-token logits."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from strata_recipes.engine.session import Session
from strata_recipes.errors import ConfigError
from strata_recipes.pack.reader import open_pack
from tests.end_to_end.conftest import Strata
from tests.engine.plans import plan_for
from tests.faults import oracle
from tests.faults.conftest import Packed

CHUNK = 7
IDS = np.random.default_rng(3).integers(3, 128, 32)


@pytest.fixture(scope="module")
def rows(tiny: Packed) -> NDArray[np.float64]:
    """Logits after each token; a prompt's last row is that of its length."""
    return oracle.logits(tiny.made.geometry, tiny.made.weights, IDS)


@pytest.mark.parametrize("super_chunk", [None, CHUNK, 2 * CHUNK, "whole"])
def test_all_lengths_give_what_one_token_at_a_time_gives(super_chunk: int | str | None, tiny: Packed, rows: NDArray[np.float64]) -> None:
    """7 divides neither 32 nor the blocks of 4 that attention pools."""
    order = {"order": "layer_major", "super_chunk": super_chunk} if super_chunk else {}
    with open_pack(tiny.folder) as pack:
        plan = plan_for(pack, mode="mapped", slots=2, chunk=CHUNK, prompt=IDS.size, new=1, **order)  # type: ignore[arg-type]
        with Session(plan, pack, poison=True) as session:
            for length in (1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 2 * CHUNK, 2 * CHUNK + 1, 31, 32):
                found = session.prompt(IDS[:length]).last
                assert np.abs(found - rows[length - 1]).max() <= 1e-4 * np.abs(rows).max(), length


def test_no_token_and_too_many_are_refused_and_the_session_lives(tiny: Packed, rows: NDArray[np.float64]) -> None:
    with open_pack(tiny.folder) as pack, Session(plan_for(pack, prompt=20, new=0, chunk=CHUNK), pack) as session:
        context = session.plan.kv.max_context
        for ids, told in ((IDS[:0], "0 tokens"), (np.resize(IDS, context + 1), f"{context + 1} tokens, the context holds {context}")):
            with pytest.raises(ConfigError, match=told):
                session.prompt(ids)
        with pytest.raises(RuntimeError, match="no prompt"):
            session.generate()
        assert np.abs(session.prompt(IDS[:5]).last - rows[4]).max() <= 1e-4 * np.abs(rows).max()
        assert session.generate(max_new_tokens=0).tokens == ()
        session.prompt(IDS[:5])
        assert session.generate(max_new_tokens=1).tokens == (int(rows[4].argmax()),)


def test_a_whole_context_twice_over(tiny: Packed) -> None:
    """Nothing of the first is kept for the second, so no token is left unread: the same logits, and one reply token of room none."""
    with open_pack(tiny.folder) as pack, Session(plan_for(pack, prompt=40, new=0, chunk=8), pack) as session:
        ids = np.resize(IDS, session.plan.kv.max_context)
        found = []
        for _ in range(2):
            found.append(session.prompt(ids).last.tobytes())
            assert session.generate(max_new_tokens=5).stop.value == "context"
        assert found[0] == found[1]


def test_a_prompt_that_fits_only_without_its_template_is_refused(inside: Strata) -> None:
    """The template's tokens count before anything is read: 3 of text, and what makes a turn of them."""
    words = ("mode=plan", "hardware=rtx3060_6gb", "model=demo", "decode.max_new_tokens=4", "workload.text='One day'", "kv.max_context=8")
    assert inside(*words, "workload.template=none").code == 0
    done = inside(*words, "workload.template=chat", root="chat")
    assert done.code == 2 and "over kv.max_context=8" in done.last_line and not done.folders
    assert "a prompt of 2 tokens" not in done.last_line
