"""Tokens and logit bits do not depend on where experts lie or how they are read; and they are the oracle's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from strata_recipes.engine.session import Session
from strata_recipes.pack.reader import Pack, open_pack
from strata_recipes.schedule.prefill import Half, Visit, chunks
from tests.engine.plans import nothing_left, oracle, plan_for, run

NEW = 12


@pytest.fixture(scope="module")
def ids() -> NDArray[Any]:
    return oracle("tiny-q2_0.mid")["ids"][:70]


@pytest.fixture(scope="module")
def wanted(tiny_folder: Path, ids: NDArray[Any]) -> tuple[NDArray[np.float32], tuple[int, ...]]:
    with open_pack(tiny_folder) as pack:
        return run(plan_for(pack, mode="resident", prompt=ids.size, new=NEW, chunk=16), pack, ids)


def same(found: tuple[NDArray[np.float32], tuple[int, ...]], wanted: tuple[NDArray[np.float32], tuple[int, ...]]) -> bool:
    return found[1] == wanted[1] and found[0].tobytes() == wanted[0].tobytes()


SLOTS = [0, 1, 3, 24, 50, 95, 96]
WAYS = [(mode, slots, file_io) for mode in ("budget", "mapped") for slots in SLOTS for file_io in ("buffered", "direct")]
# where a reply reads no file, one way of reading for each
WAYS += [("full_arena", slots, ("buffered", "direct")[at % 2]) for at, slots in enumerate(SLOTS)]
WAYS += [("resident", slots, ("direct", "buffered")[at % 2]) for at, slots in enumerate(SLOTS)]


@pytest.mark.parametrize(("mode", "slots", "file_io"), WAYS)
def test_every_mode_slot_count_and_way_of_reading(
    mode: str, slots: int, file_io: str, tiny: Pack, ids: NDArray[Any], wanted: object
) -> None:
    budget = 30 * tiny.index.max_blob_bytes if mode == "budget" else None
    plan = plan_for(tiny, mode=mode, slots=slots, ram_budget=budget, file_io=file_io, prompt=ids.size, new=NEW, chunk=16)
    assert plan.vram_slots == slots and plan.vram_slots + plan.ram_blobs + plan.file_blobs == 96
    assert same(run(plan, tiny, ids), wanted)  # type: ignore[arg-type]
    assert nothing_left(tiny)


@pytest.mark.parametrize("file_io", ["buffered", "direct"])
def test_mixed_blob_sizes(file_io: str, mixed: Pack) -> None:
    """Layers of four quant types and sizes: slots of their own sizes, the same bits."""
    ids = oracle("tiny-mixed.mid")["ids"]
    stored = oracle("tiny-mixed.mid")["logits"]
    found = [
        run(plan_for(mixed, mode=mode, slots=slots, file_io=file_io, prompt=ids.size, new=4, chunk=64), mixed, ids)
        for mode, slots in (("resident", 0), ("mapped", 0), ("mapped", 31), ("full_arena", 17))
    ]
    assert all(same(other, found[0]) for other in found[1:])
    error = np.linalg.norm(found[0][0] - stored) / np.linalg.norm(stored)
    assert error <= 1e-3


def test_the_greedy_reply_is_the_oracles(tiny: Pack) -> None:
    stored = oracle("tiny-q2_0.greedy")
    plan = plan_for(tiny, mode="mapped", slots=20, file_io="direct", prompt=40, new=48)
    plan = dataclasses.replace(plan, decode=dataclasses.replace(plan.decode, stop_at_eos=False))
    _, tokens = run(plan, tiny, stored["ids"])
    np.testing.assert_array_equal(tokens, stored["tokens"])


@pytest.mark.parametrize("length", ["short", "mid", "long"])
def test_logits_are_the_oracles(length: str, tiny: Pack) -> None:
    stored = oracle(f"tiny-q2_0.{length}")
    found, _ = run(plan_for(tiny, mode="mapped", slots=7, prompt=stored["ids"].size, new=1), tiny, stored["ids"])
    assert np.linalg.norm(found - stored["logits"]) / np.linalg.norm(stored["logits"]) <= 1e-3


def layer_major(num_layers: int, num_tokens: int, chunk: int) -> Iterator[Visit]:
    """Each layer for the whole prompt: mixer span by span, then its experts once for all."""
    for layer in range(num_layers):
        for start, stop in chunks(num_tokens, chunk):
            yield Visit(layer, start, stop, Half.mixer)
        yield Visit(layer, 0, num_tokens, Half.experts)


def test_any_order_of_the_same_visits_gives_the_same_bits(
    tiny: Pack, ids: NDArray[Any], wanted: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine obeys visits: a layer-major order of the same spans needs nothing else of it."""
    monkeypatch.setattr("strata_recipes.engine.prefill.chunked_visits", layer_major)
    done: list[tuple[int, int]] = []
    plan = plan_for(tiny, mode="mapped", prompt=ids.size, new=NEW, chunk=16)
    with Session(plan, tiny, poison=True) as session:
        read = session.prompt(ids, logits="all", on_chunk=lambda at, of: done.append((at, of)))
        assert read.logits is not None and same((read.logits, session.generate().tokens), wanted)  # type: ignore[arg-type]
    assert done == [(16, 70), (32, 70), (48, 70), (64, 70), (70, 70)]
    assert read.figures.super_chunks == 1


@pytest.mark.parametrize("keep", ["none", "last", "all"])
def test_the_logits_kept_do_not_change_the_reply(
    keep: str, tiny: Pack, ids: NDArray[Any], wanted: tuple[NDArray[np.float32], object]
) -> None:
    with Session(plan_for(tiny, mode="budget", prompt=ids.size, new=NEW, chunk=16), tiny) as session:
        read = session.prompt(ids, logits=keep)
        assert read.last.tobytes() == wanted[0][-1].tobytes()
        rows = {"none": None, "last": 1, "all": ids.size}[keep]
        assert (None if read.logits is None else len(read.logits)) == rows
        assert session.generate().tokens == wanted[1]


def test_a_prompt_does_not_depend_on_what_was_read_before(tiny: Pack, ids: NDArray[Any], wanted: object) -> None:
    """Cold, after another prompt, twice in a row, and after one that was cancelled half-way."""
    with Session(plan_for(tiny, mode="mapped", slots=9, prompt=ids.size, new=NEW, chunk=16), tiny, poison=True) as session:
        session.prompt(ids[::-1][:33])
        session.generate(max_new_tokens=3)
        for _ in range(2):
            read = session.prompt(ids, logits="all")
            assert read.logits is not None and same((read.logits, session.generate().tokens), wanted)  # type: ignore[arg-type]
        asked = iter(range(1000))
        with pytest.raises(Exception, match="stopped in layer 2"):
            session.prompt(ids, cancelled=lambda: next(asked) == 12)
        with pytest.raises(RuntimeError, match="no prompt to continue"):
            session.generate()
        read = session.prompt(ids, logits="all")
        assert read.logits is not None and same((read.logits, session.generate().tokens), wanted)  # type: ignore[arg-type]
