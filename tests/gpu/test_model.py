"""The whole model on a card: oracle logits and tokens, every tier mode and start, and the bits that orders and places may not change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels_numba.device import SIMULATED
from strata_recipes.engine.session import Session
from strata_recipes.engine.watching import Hooks
from strata_recipes.machine.facts import Gpu
from strata_recipes.pack.reader import Pack, open_pack
from strata_recipes.pack.sources.gguf import GgufSource
from strata_recipes.pack.sources.safetensors import HfSource
from strata_recipes.pack.writer import build_pack
from strata_recipes.plan.plan import Plan
from strata_recipes.units import GiB
from tests.engine.plans import MACHINE, plan_for
from tests.engine.test_layer_major import EDGES, IDS, SETTINGS, C, Read, S, planned, read, same
from tests.model.drive import distance
from tests.model.references import HF, SOURCES, stored
from tests.model.test_kv_rounding import BOUND

pytestmark = pytest.mark.gpu
CARD = dataclasses.replace(MACHINE, gpu=Gpu("card", "9.0", 4 * GiB, 4 * GiB, 1e12, 1e13, 2e10))
NAMES = ("tiny-q2_0", "tiny-mixed", *(("tiny-hf",) if HF.exists() else ()))
PARTS = [*((name, part) for name in NAMES for part in ("short", "mid", "long")), *(("storyteller", part) for part in ("p0", "p1", "p2"))]
GREEDY = [*((name, "greedy") for name in NAMES), *(("storyteller", part) for part in ("p0", "p1", "p2"))]
Packs = Callable[[str], Pack]


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Packs]:
    if SIMULATED:
        pytest.skip("the whole model is too big for the simulator")
    opened: dict[str, Pack] = {}

    def get(name: str) -> Pack:
        if name not in opened:
            folder, path = tmp_path_factory.mktemp("packs") / name, SOURCES[name]
            with HfSource(name, path) if path.is_dir() else GgufSource(name, path) as source:
                build_pack(source, folder)
            opened[name] = open_pack(folder)
        return opened[name]

    yield get
    for pack in opened.values():
        pack.close()


def on_card(pack: Pack, tokens: int, new: int = 4, **changes: Any) -> Plan:
    found = plan_for(pack, prompt=tokens, new=new, machine=CARD, device="cuda", **changes)
    assert found.compute.runs_on == "cuda"
    return dataclasses.replace(found, decode=dataclasses.replace(found.decode, stop_at_eos=False))


def read_all(pack: Pack, plan: Plan, ids: NDArray[Any]) -> tuple[NDArray[np.float32], tuple[int, ...]]:
    with Session(plan, pack) as session:
        result = session.prompt(ids, logits="all")
        assert result.logits is not None
        return result.logits, session.generate().tokens


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_oracle_logits(packs: Packs, name: str, part: str) -> None:
    """1e-3: the bound of the whole project for float32; torch's and our sums have other orders than transformers'."""
    want, pack = stored(name, part), packs(name)
    for chunk in (64, 512):
        got, _ = read_all(pack, on_card(pack, len(want["ids"]), 1, chunk=chunk), want["ids"])
        error = distance(got, want["logits"])
        print(f"{name}.{part} chunk {chunk}: {error:.2e}")
        assert error <= 1e-3


@pytest.mark.parametrize(("compute", "limit"), [("bf16", 2e-2), ("f16", 2e-2), ("q8", 4e-2)])
@pytest.mark.parametrize(("name", "part"), PARTS)
def test_narrower_arithmetic_stays_near(packs: Packs, name: str, part: str, compute: str, limit: float) -> None:
    want, pack = stored(name, part), packs(name)
    got, _ = read_all(pack, on_card(pack, len(want["ids"]), 1, arithmetic=compute), want["ids"])
    error = distance(got, want["logits"])
    print(f"{name}.{part} {compute}: {error:.2e}")
    assert 1e-5 < error <= limit


@pytest.mark.parametrize(("name", "part"), GREEDY)
def test_greedy_tokens(packs: Packs, name: str, part: str) -> None:
    want, pack = stored(name, part), packs(name)
    _, tokens = read_all(pack, on_card(pack, len(want["ids"]), len(want["tokens"])), want["ids"])
    assert list(tokens) == want["tokens"].tolist()


@pytest.mark.parametrize("kv", list(BOUND))
@pytest.mark.parametrize(("name", "part"), PARTS)
def test_rounded_keys_and_values_stay_near(packs: Packs, name: str, part: str, kv: str) -> None:
    want, pack = stored(name, part), packs(name)
    for chunk in (64, 512):
        got, _ = read_all(pack, on_card(pack, len(want["ids"]), 1, chunk=chunk, kv=kv), want["ids"])
        error = distance(got, want["logits"])
        print(f"{name}.{part} {kv} chunk {chunk}: {error:.2e}")
        assert error <= BOUND[kv]


@pytest.mark.parametrize("kv", ["fp16", "int8", "q4_0"])
def test_rounded_keys_and_values_in_every_order(packs: Packs, kv: str) -> None:
    pack = packs("tiny-q2_0")
    wanted = taken(pack, card_planned(pack, 130, order="chunked", super_chunk="auto", kv=kv), 130)
    for super_chunk in (S, "whole"):
        assert same(taken(pack, card_planned(pack, 130, super_chunk=super_chunk, kv=kv), 130), wanted)


@pytest.mark.parametrize(("kv", "resident"), [("fp32", 1), ("fp16", 77), ("int8", 33), ("q4_0", 97)])
def test_cells_in_page_locked_ram_give_the_same_bits(packs: Packs, kv: str, resident: int) -> None:
    pack = packs("tiny-q2_0")
    wanted = taken(pack, card_planned(pack, 130, order="chunked", super_chunk="auto", kv=kv), 130)
    for order in (dict(order="chunked", super_chunk="auto"), dict(super_chunk=S)):
        plan = card_planned(pack, 130, kv=kv, resident=resident, **order)
        assert plan.kv.resident_tokens == resident
        assert same(taken(pack, plan, 130), wanted)


MODES: list[dict[str, Any]] = [
    dict(mode="full_arena", slots=30),
    dict(mode="full_arena", slots=0),
    dict(mode="resident", slots=0),
    dict(mode="resident", slots=40),
    dict(mode="budget", slots=5, ram_budget=20 * 16384),
    dict(mode="mapped", slots=0, file_io="buffered"),
    dict(mode="mapped", slots=11, file_io="direct"),
]


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_tier_mode_gives_the_oracles_tokens_and_one_set_of_bits(packs: Packs, name: str, mode: dict[str, Any]) -> None:
    want, pack = stored(name, "greedy"), packs(name)
    tokens, count = len(want["ids"]), len(want["tokens"])
    base, _ = read_all(pack, on_card(pack, tokens, count), want["ids"])
    found, reply = read_all(pack, on_card(pack, tokens, count, **mode), want["ids"])
    assert found.tobytes() == base.tobytes()
    assert list(reply) == want["tokens"].tolist()


def card_planned(pack: Pack, tokens: int, **changes: Any) -> Plan:
    return planned(pack, tokens, **({"machine": CARD, "device": "cuda"} | changes))


def taken(pack: Pack, plan: Plan, tokens: int) -> Read:
    return read(plan, pack, IDS[:tokens])


@pytest.mark.parametrize("name", ["tiny-q2_0", "tiny-mixed"])
@pytest.mark.parametrize("tokens", EDGES)
def test_layer_major_has_chunked_orders_bits(packs: Packs, name: str, tokens: int) -> None:
    pack = packs(name)
    wanted = taken(pack, card_planned(pack, tokens, order="chunked", super_chunk="auto"), tokens)
    for super_chunk in (S, 2 * C, "whole"):
        for residuals in ("vram", "host") if tokens > C else ("auto",):
            plan = card_planned(pack, tokens, super_chunk=super_chunk, residuals=residuals)
            assert same(taken(pack, plan, tokens), wanted), (super_chunk, residuals)


@pytest.mark.parametrize("name", ["tiny-q2_0", "tiny-mixed"])
@pytest.mark.parametrize("tokens", [tokens for tokens in EDGES if tokens > C])
def test_streamed_dense_weights_give_resident_ones_bits(packs: Packs, name: str, tokens: int) -> None:
    pack = packs(name)
    wanted = taken(pack, card_planned(pack, tokens, order="chunked", super_chunk="auto"), tokens)
    for super_chunk in (S, 2 * C, "whole"):
        for residuals in ("vram", "host"):
            plan = card_planned(pack, tokens, super_chunk=super_chunk, residuals=residuals, dense="streamed")
            assert plan.prefill.dense == "streamed"
            assert same(taken(pack, plan, tokens), wanted), (super_chunk, residuals)


def test_a_session_goes_back_to_streaming_for_its_next_prompt(packs: Packs) -> None:
    pack, tokens = packs("tiny-mixed"), 2 * S + 5
    plan = card_planned(pack, tokens, super_chunk="whole", dense="streamed")
    with Session(plan, pack) as session:
        replies = []
        for _ in range(2):
            session.prompt(IDS[:tokens])
            replies.append(session.generate(max_new_tokens=4).tokens)
    assert replies[0] == replies[1] == taken(pack, card_planned(pack, tokens, order="chunked", super_chunk="auto"), tokens).tokens


@pytest.mark.parametrize("setting", [setting for setting in SETTINGS if "machine" not in setting], ids=str)
def test_every_setting_has_chunked_orders_bits(packs: Packs, setting: dict[str, Any]) -> None:
    pack, tokens = packs("tiny-q2_0"), 2 * S + 5
    wanted = taken(pack, card_planned(pack, tokens, order="chunked", super_chunk="auto"), tokens)
    for residuals in ("vram", "host"):
        plan = card_planned(pack, tokens, super_chunk="whole", residuals=residuals, **setting)
        assert same(taken(pack, plan, tokens), wanted), residuals


@pytest.mark.parametrize("strategy", ["mapped", "unbuffered"])
def test_slots_and_ram_hold_the_packs_bytes(packs: Packs, strategy: str) -> None:
    from strata_recipes.config.choices import Strategy
    from strata_recipes.config.schema import Startup

    pack = packs("tiny-mixed")
    startup = Startup(strategy=Strategy(strategy), fill_batch=3, copy_batch=2, merge=40_000)
    plan = on_card(pack, 40, verify=True, mode="resident", slots=13, startup=startup)
    with Session(plan, pack) as session:
        slots, ram = session.checksums()
    assert len(slots) == 13 and len(ram) == pack.index.geometry.total_experts - 13
    for layer, expert, checksum in (*slots, *ram):
        assert checksum == int(pack.checksums[layer, expert]), (layer, expert)


def test_a_refused_lock_copies_pageable_with_one_warning_and_another_of_replies(packs: Packs, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    pack, notes = packs("tiny-q2_0"), []
    plan = on_card(pack, 40, mode="resident", slots=5)
    wanted = read_all(pack, plan, IDS[:40])

    real = torch.cuda.cudart()

    class Refusing:
        def cudaHostRegister(self, *arguments: int) -> int:
            return 1

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    monkeypatch.setattr(torch.cuda, "cudart", Refusing)
    with Session(plan, pack, hooks=Hooks(note=notes.append)) as session:
        result = session.prompt(IDS[:40], logits="all")
        assert result.logits is not None
        found = result.logits, session.generate().tokens
    assert found[0].tobytes() == wanted[0].tobytes() and found[1] == wanted[1]
    assert [note for note in notes if "page-lock" in note] == notes and len(notes) == 2
    assert "replies are computed visit by visit" in notes[1]


def test_a_card_with_less_than_promised_leaves_the_last_slots_to_the_file(packs: Packs, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    pack, notes = packs("tiny-q2_0"), []
    plan = on_card(pack, 40, mode="mapped", slots=30)
    wanted = read_all(pack, plan, IDS[:40])
    real = torch.cuda.mem_get_info
    calls = []

    def shrinking(*arguments: Any) -> tuple[int, int]:
        calls.append(arguments)
        free, whole = real(*arguments)
        return (free if len(calls) < 2 else 0), whole

    monkeypatch.setattr(torch.cuda, "mem_get_info", shrinking)
    with Session(plan, pack, hooks=Hooks(note=notes.append)) as session:
        assert len(session.started.tiers.vram) == 0
        result = session.prompt(IDS[:40], logits="all")
    assert result.logits is not None and result.logits.tobytes() == wanted[0].tobytes()
    assert any("the card holds 0 of the planned 30 slots" in note for note in notes)
