"""Budgets of every size on the odd models: refused at plan time, or the float64 oracle's tokens and never a byte over."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from strata_recipes.engine.session import Session
from strata_recipes.errors import PlanError
from strata_recipes.pack.reader import Pack, open_pack
from strata_recipes.plan.plan import Plan
from strata_recipes.tiers.ledger import Ledger
from tests.engine.plans import WITH_CARD, nothing_left, plan_for
from tests.faults import oracle
from tests.faults.conftest import Packed, packed
from tests.faults.drive import Drive
from tests.faults.models import BF16, MIXED, f3

NEW = 6


@pytest.fixture(params=["tiny", "wide", "mixed"])
def model(request: pytest.FixtureRequest) -> Packed:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


@contextmanager
def watched(patch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every taking of memory, looked at as it happens; what passed a budget is collected."""
    over: list[str] = []
    take = Ledger.take

    def watching(self: Ledger, budget: str, *rest: object) -> object:
        taken = take(self, budget, *rest)  # type: ignore[arg-type]
        use = self.use()
        over.extend(name for name, part in (("vram", use.vram), ("ram", use.ram)) if part.used_bytes > part.limit_bytes)
        return taken

    with patch.context() as inner:
        inner.setattr(Ledger, "take", watching)
        yield over


def answer(plan: Plan, pack: Pack, ids: NDArray[np.int64]) -> tuple[bytes, tuple[int, ...]]:
    """Logits of the whole prompt and the reply."""
    plan = dataclasses.replace(plan, decode=dataclasses.replace(plan.decode, stop_at_eos=False))
    with Session(plan, pack, poison=True) as session:
        read = session.prompt(ids, logits="all")
        assert read.logits is not None
        slots = plan.vram_slots, plan.ram_blobs
        tokens = session.generate().tokens
        assert (len(session.started.tiers.vram), len(session.started.tiers.ram)) == slots, "the number of places never changes"
        return read.logits.tobytes(), tokens


def test_the_oracles_logits_and_tokens(model: Packed, prompt: NDArray[np.int64]) -> None:
    """Experts past 255 included: F2 chooses them."""
    reference = oracle.Oracle(model.made.geometry, model.made.weights)
    wanted = reference.read(prompt)
    with open_pack(model.folder) as pack:
        logits, tokens = answer(plan_for(pack, prompt=prompt.size, new=NEW, mode="mapped", file_io="direct"), pack, prompt)
    found = np.frombuffer(logits, np.float32).reshape(wanted.shape)
    assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()
    assert list(tokens) == oracle.greedy(model.made.geometry, model.made.weights, prompt, NEW)
    if model.made.geometry.num_experts > 256:
        assert max(expert for token in reference.chosen for layer in token for expert in layer) > 256


@pytest.mark.parametrize("order", ["chunked", "layer_major"])
def test_every_number_of_slots_and_ram_blobs(order: str, mixed: Packed, prompt: NDArray[np.int64], monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads come late and short meanwhile, and what is freed is overwritten."""
    wanted = None
    with open_pack(mixed.folder) as pack, watched(monkeypatch) as over:
        drive = Drive(pack.experts_path, seed=4, late_s=0.0005, short=0.3, refused=0.2).install(monkeypatch)
        for slots, budget in [(0, 0), (0, 30_000), (1, 200_000), (5, 17_000), (12, 90_000), (23, 1), (24, 0), (3, 600_000)]:
            mode = "budget" if budget else "mapped"
            plan = plan_for(
                pack, mode=mode, slots=slots, ram_budget=budget or None, order=order, file_io="direct", chunk=8, prompt=20, new=NEW
            )
            found = answer(plan, pack, prompt)
            wanted = wanted or found
            assert found == wanted, (slots, budget)
            assert nothing_left(pack)
    assert drive.reads and not over


def test_a_budget_is_refused_or_kept(model: Packed, prompt: NDArray[np.int64]) -> None:
    """VRAM and RAM from far too little on; one byte decides whether a record still fits."""
    with open_pack(model.folder) as pack:
        wanted = answer(plan_for(pack, prompt=prompt.size, new=NEW, chunk=8), pack, prompt)
        blobs, refused = sorted({at.blob_bytes for at in pack.index.layers}), []

        @settings(max_examples=10)
        @given(
            edge=st.sampled_from([0, *blobs]),
            times=st.integers(0, 30),
            off=st.integers(-1, 1),
            ram=st.integers(1 << 20, 24 << 20),
            mode=st.sampled_from(["auto", "resident", "full_arena", "mapped"]),
        )
        def check(edge: int, times: int, off: int, ram: int, mode: str) -> None:
            vram = 1_000_000 + edge * times + off
            assert WITH_CARD.gpu is not None
            card = dataclasses.replace(WITH_CARD.gpu, vram_bytes=vram, free_bytes=vram)
            machine = dataclasses.replace(WITH_CARD, gpu=card, ram_available_bytes=ram)
            with pytest.MonkeyPatch.context() as patch, watched(patch) as over:
                try:
                    plan = plan_for(pack, mode=mode, machine=machine, prompt=prompt.size, new=NEW, chunk=8)
                except PlanError as error:
                    refused.append(str(error))
                    return
                assert answer(plan, pack, prompt) == wanted
            assert not over

        check()
    assert all(re.search(r"(short by|over) .*?[1-9][\d.,]* (MiB|KiB|B)\b", text) for text in refused), refused


@pytest.mark.parametrize("first", ["smallest", "largest"])
def test_the_first_layers_size_is_not_every_layers(first: str, tmp_path_factory: pytest.TempPathFactory, prompt: NDArray[np.int64]) -> None:
    """Slots for exactly one layer's bytes: as many as fit at each one's own size, whichever layer comes first."""
    sizes = sorted([*MIXED[1:], BF16], key=lambda names: {"Q4_0": 1, "Q8_0": 2, "BF16": 3}[names[0]] + (names[2] == "F32"))
    folder = tmp_path_factory.mktemp(first)
    model = packed(f3(folder, sizes if first == "smallest" else sizes[::-1]), folder / "pack")
    wanted = oracle.greedy(model.made.geometry, model.made.weights, prompt, NEW)
    with open_pack(model.folder) as pack:
        blobs = [at.blob_bytes for at in pack.index.layers]
        assert (blobs[0] == min(blobs)) == (first == "smallest")
        for budget in (6 * blobs[0], 6 * blobs[0] - 1, 6 * sum(blobs)):
            plan = plan_for(pack, mode="budget", slots=0, ram_budget=budget, prompt=prompt.size, new=NEW)
            order, left, held = pack.order(), budget, 0
            while held < len(order) and blobs[order[held][0]] <= left:
                left, held = left - blobs[order[held][0]], held + 1
            assert plan.ram_blobs == held
            assert list(answer(plan, pack, prompt)[1]) == wanted


def test_a_second_prompt_of_other_experts_takes_no_more(wide: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second prompt is chosen for how few experts it shares with the first."""
    rng, g = np.random.default_rng(5), wide.made.geometry
    routed = []
    for _ in range(8):
        ids = rng.integers(3, 128, 3)
        reference = oracle.Oracle(g, wide.made.weights)
        reference.read(ids)
        routed.append((ids, {(la, ex) for token in reference.chosen for la, layer in enumerate(token) for ex in layer}))
    first = routed[0]
    second = min(routed[1:], key=lambda other: len(first[1] & other[1]))
    assert len(second[1] - first[1]) > 40
    with open_pack(wide.folder) as pack, watched(monkeypatch) as over:
        plan = plan_for(pack, mode="mapped", slots=40, prompt=3, new=NEW, file_io="direct")
        with Session(plan, pack, poison=True) as session:
            session.prompt(first[0])
            session.generate()
            before = session.memory()
            for ids, _ in (second, first):
                session.prompt(ids)
                session.generate()
            after = session.memory()
    assert (after.ram_peak_bytes, after.vram_peak_bytes) == (before.ram_peak_bytes, before.vram_peak_bytes)
    assert after.ram_peak_bytes <= after.ram_budget_bytes and not over
