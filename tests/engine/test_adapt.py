"""Experts that follow a reply: the same tokens and bits as where they stay, in every mode, and the figures of what moved."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from strata_recipes.config.schema import Adapt
from strata_recipes.engine.session import Session
from strata_recipes.engine.stepper import WalkStepper
from strata_recipes.pack.checksum import blob_checksum
from strata_recipes.pack.reader import Pack, open_pack
from strata_recipes.plan.budget import EXCHANGE
from strata_recipes.plan.plan import Plan
from tests.engine.plans import WITH_CARD, nothing_left, oracle, plan_for

NEW = 20
EAGER = Adapt(every=1, swaps=6, decay=0.5)


@pytest.fixture(scope="module")
def ids() -> NDArray[Any]:
    return oracle("tiny-q2_0.mid")["ids"][:40]


def reply(plan: Plan, pack: Pack, ids: NDArray[Any], monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, tuple[int, ...], int | None]:
    """Bits of all logits of the reply, its tokens, and how many experts moved; every blob is whole at the end, every part kept."""
    seen: list[bytes] = []
    plan = dataclasses.replace(plan, decode=dataclasses.replace(plan.decode, stop_at_eos=False))
    step = WalkStepper.step

    def recorded(self: WalkStepper, tokens: Sequence[int]) -> Any:
        logits = step(self, tokens)
        seen.append(logits.tobytes())
        return logits

    with monkeypatch.context() as patch, Session(plan, pack, poison=True) as session:
        patch.setattr(WalkStepper, "step", recorded)
        session.prompt(ids)
        found = session.generate()
        check(session, pack)
    assert nothing_left(pack)
    return b"".join(seen), found.tokens, found.figures.swaps


def check(session: Session, pack: Pack) -> None:
    """As many experts in each tier as planned, each in one place and whole, no budget passed."""
    plan, tiers, g, use = session.plan, session.started.tiers, pack.index.geometry, session.ledger.use()
    vram, ram = set(tiers.vram.pairs()), set(tiers.ram.pairs())
    assert (len(vram), len(vram | ram)) == (plan.vram_slots, plan.vram_slots + plan.ram_blobs)
    assert plan.experts.ram_start is not None or not vram & ram
    for layer in range(g.num_layers):
        for expert, blob in tiers.blobs(layer, range(g.num_experts)):
            assert blob_checksum(blob.data, layer, expert) == int(pack.checksums[layer, expert])
    assert dict(use.ram.parts).get(EXCHANGE, 0) == plan.ram.part(EXCHANGE)
    assert use.ram.peak_bytes <= use.ram.limit_bytes and use.vram.peak_bytes <= use.vram.limit_bytes


@pytest.fixture(scope="module")
def still(tiny_folder: Path, ids: NDArray[Any]) -> tuple[bytes, tuple[int, ...]]:
    """Bits and tokens of the reply where every expert stays; in every mode the same."""
    with pytest.MonkeyPatch.context() as patch, open_pack(tiny_folder) as pack:
        bits, tokens, swaps = reply(plan_for(pack, mode="mapped", slots=24, prompt=ids.size, new=NEW, chunk=16), pack, ids, patch)
    assert swaps is None and len(tokens) == NEW
    return bits, tokens


# how the file is read matters most where one is read
WAYS = [
    *((mode, slots, "buffered" if slots == 24 else "direct") for mode in ("full_arena", "resident") for slots in (1, 24, 80)),
    *((mode, slots, "direct" if slots == 24 else "buffered") for mode in ("budget", "mapped") for slots in (1, 24, 80)),
    ("budget", 80, "direct"),
    ("mapped", 1, "direct"),
]


@pytest.mark.parametrize(("mode", "slots", "file_io"), WAYS)
def test_the_same_bits_in_every_mode(
    mode: str,
    slots: int,
    file_io: str,
    tiny: Pack,
    ids: NDArray[Any],
    still: tuple[bytes, tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = (30 if slots < 60 else 5) * tiny.index.max_blob_bytes if mode == "budget" else None
    plan = plan_for(tiny, mode=mode, slots=slots, ram_budget=budget, file_io=file_io, prompt=ids.size, new=NEW, chunk=16, adapt=EAGER)
    bits, tokens, swaps = reply(plan, tiny, ids, monkeypatch)
    assert (bits, tokens) == still and swaps


@pytest.mark.parametrize(("mode", "slots"), [("mapped", 31), ("full_arena", 17), ("resident", 31), ("budget", 31)])
def test_mixed_blob_sizes(mode: str, slots: int, mixed: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = oracle("tiny-mixed.mid")["ids"]
    budget = 20 * mixed.index.max_blob_bytes if mode == "budget" else None
    still, moved = (
        reply(plan_for(mixed, mode=mode, slots=slots, ram_budget=budget, prompt=ids.size, new=NEW, adapt=how), mixed, ids, monkeypatch)
        for how in (Adapt(), EAGER)
    )
    assert moved[:2] == still[:2] and moved[2]


def test_on_a_planned_card_whose_vram_is_an_arena_here(tiny: Pack, ids: NDArray[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    still, moved = (
        reply(plan_for(tiny, mode="resident", slots=40, machine=WITH_CARD, prompt=ids.size, new=NEW, adapt=how), tiny, ids, monkeypatch)
        for how in (Adapt(), EAGER)
    )
    assert moved[:2] == still[:2] and moved[2]


def test_what_is_counted_is_what_was_looked_up(tiny: Pack, ids: NDArray[Any]) -> None:
    plan = plan_for(tiny, mode="resident", slots=30, prompt=ids.size, new=NEW, adapt=Adapt(every=7, swaps=2))
    with Session(plan, tiny) as session:
        counted = session.learned()
        assert counted is not None and counted.sum() == 0
        session.prompt(ids)
        assert session.learned().sum() == 0, "a prompt's choices are not a reply's"  # type: ignore[union-attr]
        figures = session.generate().figures
        counted = session.learned()
        assert counted is not None
        g = tiny.index.geometry
        assert (counted.sum(axis=1) == (figures.tokens - 1) * g.top_k).all()
        assert counted.sum() == figures.vram_hits + figures.ram_hits + figures.file_hits
        assert figures.swaps is not None and 0 < figures.swaps <= 2 * ((figures.tokens - 1) // 7)
        assert figures.swap_s is not None and 0 < figures.swap_s < figures.seconds


def test_nothing_is_counted_where_nobody_asked(tiny: Pack, ids: NDArray[Any]) -> None:
    plan = plan_for(tiny, mode="resident", slots=30, prompt=ids.size, new=3)
    with Session(plan, tiny) as session:
        session.prompt(ids)
        assert session.generate().figures.swaps is None and session.learned() is None


def test_hits_rise_where_slots_begin_with_the_coldest(tiny: Pack, ids: NDArray[Any]) -> None:
    """An order that is the reverse of what the reply chooses: with experts that move, more look-ups find a slot."""
    with Session(with_counts(plan_for(tiny, mode="resident", prompt=ids.size, new=48)), tiny) as session:
        session.prompt(ids)
        session.generate()
        counts = session.learned()
    assert counts is not None
    worst = sorted(((la, ex) for la, ex in np.ndindex(*counts.shape)), key=lambda pair: (counts[pair], pair))
    hits = []
    for adapt in (Adapt(), Adapt(every=4, swaps=8, decay=0.9)):
        plan = plan_for(tiny, mode="resident", slots=40, prompt=ids.size, new=48, adapt=adapt)
        with Session(plan, tiny, order=worst) as session:
            session.prompt(ids)
            hits.append(session.generate().figures.vram_hits)
    assert hits[1] > 1.25 * hits[0], hits


def with_counts(plan: Plan) -> Plan:
    return dataclasses.replace(plan, experts=dataclasses.replace(plan.experts, counted=True))


@pytest.mark.parametrize("order", ["chunked", "layer_major"])
def test_a_prompt_after_experts_moved_is_read_the_same(order: str, tiny: Pack, ids: NDArray[Any]) -> None:
    """Also where its experts are read ahead: those that lie elsewhere now."""
    found = []
    for adapt in (Adapt(), EAGER):
        plan = plan_for(
            tiny, mode="mapped", slots=24, prompt=ids.size, new=NEW, chunk=16, order=order, direct=order == "layer_major", adapt=adapt
        )
        with Session(plan, tiny, poison=True) as session:
            for _ in range(2):
                read = session.prompt(ids, logits="all")
                assert read.logits is not None
                found.append((read.logits.tobytes(), session.generate().tokens))
            moves = session.started.tiers.take_moves()
            assert bool(moves) == (adapt.every > 0) and len(moves) == len(set(moves))
    assert len(set(found)) == 1
    assert nothing_left(tiny)
