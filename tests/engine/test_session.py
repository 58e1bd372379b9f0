"""A session's refusals, figures, budgets and checksums; and that nothing is left of it."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import pytest
import torch

from strata_recipes.config.choices import Strategy
from strata_recipes.config.schema import Startup
from strata_recipes.engine.decode import Stop
from strata_recipes.engine.session import Session
from strata_recipes.engine.watching import Hooks, Progress
from strata_recipes.errors import ConfigError, DeviceError, FileError, PackError
from strata_recipes.files.residency import cached_bytes, drop_cached
from strata_recipes.machine.cores import usable_cores
from strata_recipes.pack.reader import Pack, open_pack
from strata_recipes.plan.plan import Plan
from tests.engine.plans import WITH_CARD, nothing_left, oracle, plan_for

IDS = oracle("tiny-q2_0.greedy")["ids"]


@pytest.fixture
def own(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy of the pack, to be spoilt."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "own"))


def test_prompts_that_cannot_be_read_are_refused_with_both_numbers(tiny: Pack) -> None:
    plan = plan_for(tiny, prompt=40, new=8)
    with Session(plan, tiny) as session:
        with pytest.raises(ConfigError, match=r"has 0 tokens .* workload\.text"):
            session.prompt([])
        with pytest.raises(
            ConfigError, match=f"has {plan.kv.max_context + 1} tokens, the context holds {plan.kv.max_context}: raise kv.max_context"
        ):
            session.prompt(np.zeros(plan.kv.max_context + 1, np.int64))
        with pytest.raises(ConfigError, match="token id 512 at position 1"):
            session.prompt([3, 512])
        with pytest.raises(RuntimeError, match="no prompt to continue"):
            session.generate()


def test_a_reply_stops_at_its_limit_the_context_or_the_end_of_text(tiny: Pack) -> None:
    plan = plan_for(tiny, prompt=510, new=2)
    with Session(plan, tiny) as session:
        told: list[int] = []
        session.prompt(np.resize(IDS, 510))
        reply = session.generate(max_new_tokens=9, on_token=told.append)
        assert (reply.stop, len(reply.tokens), plan.kv.max_context) == (Stop.context, 2, 512)
        assert tuple(told) == reply.tokens
        session.prompt(IDS)
        assert session.generate(max_new_tokens=0).tokens == ()
        session.prompt(IDS)
        free = session.generate(max_new_tokens=5)
        assert free.stop is Stop.max_new_tokens and free.tokens == tuple(oracle("tiny-q2_0.greedy")["tokens"][:5])
        tiny.eos_token_ids = (free.tokens[2],)
        session.prompt(IDS)
        ended = session.generate(max_new_tokens=5)
        assert ended.stop is Stop.eos and ended.tokens == free.tokens[: free.tokens.index(free.tokens[2]) + 1]
        session.plan = dataclasses.replace(plan, decode=dataclasses.replace(plan.decode, stop_at_eos=False))
        session.prompt(IDS)
        assert session.generate(max_new_tokens=5).tokens == free.tokens


@pytest.mark.parametrize("file_io", ["buffered", "direct"])
def test_figures_of_a_run(file_io: str, tiny: Pack) -> None:
    plan = plan_for(
        tiny, mode="budget", slots=20, ram_budget=30 * 13824, file_io=file_io, chunk=16, new=6, startup=Startup(Strategy.mapped)
    )
    seen: list[Progress] = []
    with Session(plan, tiny, hooks=Hooks(progress=seen.append, available_bytes=lambda: 123)) as session:
        read, reply, memory = session.prompt(IDS), session.generate(), session.memory()
        started, tiers = session.started, session.started.tiers
        use = session.ledger.use()
    figures, stride = read.figures, 16384
    assert (plan.vram_slots, plan.ram_blobs, plan.file_blobs) == (20, 30, 46)
    assert (
        (started.figures.fill_bytes, started.figures.copy_bytes)
        == (plan.startup.fill_bytes, plan.startup.copy_bytes)
        == (20 * 13824, 30 * 13824)
    )
    assert started.figures.strategy == plan.startup.strategy == "mapped" and started.figures.fallback is None
    assert [p.done_bytes for p in seen] == [13824 * i for i in range(1, 21)] + [13824 * i for i in range(1, 31)]
    assert {(p.step, p.total_bytes) for p in seen} == {("fill", 20 * 13824), ("copy", 30 * 13824)}
    reading = {"buffered": "through their mapping", "direct": "direct, by 2 threads into 2 buffers of 16384 bytes"}[file_io]
    assert started.reading == f"46 experts of experts.bin are read {reading}"
    assert started.recheck is not None
    assert (started.recheck.planned, started.recheck.available_bytes, started.recheck.threshold_bytes) == (
        file_io, 123, plan.experts.file_io_threshold_bytes,
    )  # fmt: skip
    assert started.recheck.holds == (file_io == "direct")
    assert figures.expert_bytes_one_pass == 46 * stride
    assert figures.expert_bytes_touched <= 46 * stride and figures.expert_bytes_touched % stride == 0
    assert figures.expert_bytes_read == figures.file_hits * stride
    assert (figures.tokens, figures.super_chunks, figures.order) == (40, 3, "chunked")
    assert reply.figures.tokens == 6 and reply.figures.vram_hits + reply.figures.ram_hits + reply.figures.file_hits == 5 * 4 * 4
    assert figures.mixer_s + figures.experts_s + figures.logits_s <= figures.seconds
    assert memory.vram_peak_bytes == memory.vram_budget_bytes == plan.vram.used_bytes == 20 * 13824
    assert memory.ram_peak_bytes == plan.ram.used_bytes == use.ram.used_bytes <= memory.ram_budget_bytes
    assert dict(use.ram.parts) == {part.name: part.num_bytes for part in plan.ram.parts}
    assert tiers is not None and nothing_left(tiny)
    after = session.ledger.use()
    assert (after.vram.used_bytes, after.ram.used_bytes) == (0, 0)


def test_a_planned_card_that_is_not_here_reads_as_the_cpu_does(tiny: Pack) -> None:
    plan = plan_for(tiny, mode="mapped", slots=0, file_io="buffered", machine=WITH_CARD)
    assert (plan.compute.device, plan.compute.runs_on) == ("cuda", "cpu")
    with Session(plan, tiny) as session:
        assert session.started.reading == "96 experts of experts.bin are read through their mapping"


def test_a_direct_run_reads_each_visits_experts_once_and_leaves_no_page(own: Path) -> None:
    drop_cached(own / "experts.bin")
    with open_pack(own) as pack, Session(plan_for(pack, mode="mapped", file_io="direct"), pack) as session:
        read = session.prompt(IDS)
        session.generate()
    assert read.figures.expert_bytes_read == read.figures.expert_bytes_touched <= read.figures.expert_bytes_one_pass  # one chunk: once each
    assert cached_bytes(own / "experts.bin") == 0


def test_the_start_leaves_no_page_that_was_copied(own: Path) -> None:
    drop_cached(own / "experts.bin")
    with open_pack(own) as pack, Session(plan_for(pack, mode="resident", slots=10), pack) as session:
        assert session.started.figures.cached_bytes == 0
        assert cached_bytes(own / "experts.bin") == 0
        assert session.started.figures.drive_bytes is None or session.started.figures.drive_bytes >= 96 * 13824


def test_threads_are_the_plans_and_restored(tiny: Pack) -> None:
    before, plan = (torch.get_num_threads(), numba.get_num_threads()), plan_for(tiny)
    for wanted in (1, 2, 64):
        said: list[str] = []
        planned = dataclasses.replace(plan, compute=dataclasses.replace(plan.compute, threads=wanted))
        with Session(planned, tiny, hooks=Hooks(note=said.append)) as session:
            assert torch.get_num_threads() == session.threads.torch == min(wanted, usable_cores())
            assert numba.get_num_threads() == session.threads.kernels == min(wanted, numba.config.NUMBA_NUM_THREADS)
        assert (torch.get_num_threads(), numba.get_num_threads()) == before
        assert bool(said) == (wanted > usable_cores())


def test_checksums_are_the_packs(tiny: Pack) -> None:
    plan = plan_for(tiny, mode="full_arena", slots=13, verify=True)
    with Session(plan, tiny) as session:
        slots, ram = session.checksums()
    stored = {(layer, expert): int(tiny.checksums[layer, expert]) for layer in range(4) for expert in range(24)}
    assert ram == [(*pair, stored[pair]) for pair in sorted(stored)]  # full_arena: RAM holds all
    assert slots == [(*pair, stored[pair]) for pair in sorted(tiny.order()[:13])]


def spoil(pack: Pack, layer: int, expert: int) -> None:
    with open(pack.experts_path, "r+b") as file:
        file.seek(pack.index.offset(layer, expert) + 100)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize(("mode", "slots", "pair"), [("resident", 96, (2, 5)), ("resident", 0, (3, 23)), ("mapped", 0, (0, 7))])
@pytest.mark.parametrize("file_io", ["buffered", "direct"])
def test_verify_finds_a_changed_blob_in_any_tier(mode: str, slots: int, pair: tuple[int, int], file_io: str, own: Path) -> None:
    with open_pack(own) as pack:
        spoil(pack, *pair)
        plan = plan_for(pack, mode=mode, slots=slots, file_io=file_io, verify=True)
        with pytest.raises(FileError, match=f"expert {pair[1]} of layer {pair[0]}.*pack it again"), Session(plan, pack) as session:
            for ids in (IDS, IDS[::-1], np.arange(40) * 7):
                session.prompt(ids)
        assert nothing_left(pack)
        with Session(dataclasses.replace(plan, experts=dataclasses.replace(plan.experts, verify=False)), pack) as session:
            session.prompt(IDS)  # not asked for, not checked


CHANGES: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: os.truncate(path, os.path.getsize(path) - 1), "1572863 bytes"),
    (lambda path: (shutil.copy(path, path.with_name("new")), os.replace(path.with_name("new"), path)), "was replaced"),
    (lambda path: os.utime(path, ns=(1, 1)), "was written to"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES)
@pytest.mark.parametrize("file_io", ["buffered", "direct"])
@pytest.mark.parametrize("when", ["before the first prompt", "between prompts", "before the reply"])
def test_a_file_changed_while_running_is_refused_by_name(
    change: Callable[[Path], object], said: str, file_io: str, when: str, own: Path
) -> None:
    with open_pack(own) as pack, Session(plan_for(pack, mode="mapped", file_io=file_io), pack) as session:
        if when != "before the first prompt":
            session.prompt(IDS)
        change(pack.experts_path)
        with pytest.raises(FileError, match=f"experts.bin.*{said}"):
            session.generate() if when == "before the reply" else session.prompt(IDS)
    assert nothing_left(pack)


@pytest.mark.parametrize("change", [-1, -4096, 4096])
def test_a_cut_or_padded_file_is_refused_before_anything_is_allocated(change: int, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object, **more: object) -> None:
        raise AssertionError("allocated first")

    monkeypatch.setattr("strata_recipes.engine.startup.vram_slots", refused)
    with open_pack(own) as pack:
        os.truncate(pack.experts_path, 96 * 16384 + change)
        for mode, slots in (("resident", 96), ("resident", 0), ("mapped", 0)):
            with (
                pytest.raises(FileError, match=f"{96 * 16384 + change} bytes, the pack's index wants {96 * 16384}"),
                Session(plan_for(pack, mode=mode, slots=slots), pack),
            ):
                raise AssertionError("started")
        assert nothing_left(pack)


def broken(plan: Plan, what: str) -> Plan:
    match what:
        case "budget":
            return dataclasses.replace(plan, ram=dataclasses.replace(plan.ram, limit_bytes=plan.ram.used_bytes - 1))
        case "pack":
            return dataclasses.replace(plan, model=dataclasses.replace(plan.model, pack_id="another"))
        case "count":
            return dataclasses.replace(plan, ram_blobs=plan.ram_blobs - 1)
        case "strategy":
            return dataclasses.replace(plan, startup=dataclasses.replace(plan.startup, strategy="unbuffered", stage_bytes=9))
    return dataclasses.replace(plan, kv=dataclasses.replace(plan.kv, num_bytes=1))


@pytest.mark.parametrize(
    ("what", "error", "said"),
    [
        ("budget", DeviceError, "1 are missing"),
        ("pack", PackError, "the plan is for pack another"),
        ("count", PackError, "places 95 experts"),
        ("strategy", DeviceError, "an unbuffered start takes 6291456 bytes of buffers, the plan counted 9: plan again"),
        ("state", DeviceError, "the plan counted 1"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_and_leaves_nothing(what: str, error: type[Exception], said: str, tiny: Pack) -> None:
    session = Session(broken(plan_for(tiny, mode="resident"), what), tiny)
    with pytest.raises(error, match=said), session:
        session.prompt(IDS)
    use = session.ledger.use()
    assert (use.vram.used_bytes, use.ram.used_bytes) == (0, 0) and nothing_left(tiny)


def test_peak_bytes_never_pass_the_exact_budget(tiny: Pack) -> None:
    plan = plan_for(tiny, mode="budget", slots=5, ram_budget=7 * 13824, file_io="direct")
    exact = dataclasses.replace(plan, ram=dataclasses.replace(plan.ram, limit_bytes=plan.ram.used_bytes))
    with Session(exact, tiny) as session:
        session.prompt(IDS)
        session.generate(max_new_tokens=3)
        use = session.ledger.use()
    assert use.ram.peak_bytes == use.ram.limit_bytes and use.vram.peak_bytes == use.vram.limit_bytes
