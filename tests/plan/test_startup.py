"""Which start-up auto takes, by the facts alone; what it does not apply to; and the memory that it takes while it runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from strata_recipes.config.choices import ExpertsMode, FileIo, Strategy
from strata_recipes.config.schema import Config, Experts, Startup
from strata_recipes.decide import build_plan
from strata_recipes.machine.facts import Drive
from strata_recipes.plan.plan import Plan
from strata_recipes.plan.startup import StartFacts, start_facts
from strata_recipes.units import MiB
from tests.plan.cases import machine, small_config, small_index

PACK = small_index()
FAST, SATA = Drive(6e9, 1e9, 10e9), Drive(0.5e9, 0.4e9, 10e9)


def plan(drive: Drive = FAST, startup: Startup | None = None, os: str = "linux", available: int = 64 * MiB, **experts: Any) -> Plan:
    config: Config = small_config(startup=startup or Startup(), experts=Experts(**experts))
    return build_plan(config, machine(drive=drive, os=os, available=available), PACK, 100)


def because(found: Plan) -> str:
    return next(decision.because for decision in found.decisions if decision.name == "startup.strategy")


@pytest.mark.parametrize(
    ("drive", "share", "strategy"),
    [(FAST, 0.0, "unbuffered"), (FAST, 1.0, "mapped"), (SATA, 0.0, "unbuffered"), (SATA, 1.0, "mapped"), (SATA, 0.3, "mapped"),
     (FAST, 0.5, "unbuffered"), (Drive(0.8e9, 1e9, 10e9), 0.0, "mapped")],
)  # fmt: skip
def test_auto_takes_the_faster_start(drive: Drive, share: float, strategy: str) -> None:
    found = plan(dataclasses.replace(drive, cached_share=share))
    assert found.startup.strategy == strategy
    other = plan(dataclasses.replace(drive, cached_share=share), Startup(Strategy.unbuffered if strategy == "mapped" else Strategy.mapped))
    assert found.predicted.ready_s <= other.predicted.ready_s


def test_cached_pages_count_only_as_far_as_ram_holds_them_beside_the_copy() -> None:
    found = plan(startup=Startup(Strategy.mapped))
    place: Any = type("Place", (), {"vram_bytes": 3, "ram_bytes": 4})
    pc = machine(drive=dataclasses.replace(FAST, cached_share=0.5))
    ram = dataclasses.replace(found.ram, limit_bytes=found.ram.used_bytes + 1000)
    assert start_facts(place, pc, ram, 10_000) == StartFacts(7, 5_000, 1_000, 10_000, 0.0)
    assert start_facts(place, dataclasses.replace(pc, os="windows"), found.ram, 40 * 10**9).purge_s == 1.0


def test_the_page_cache_is_warmed_as_far_as_ram_is_left() -> None:
    mapped: dict[str, Any] = dict(mode=ExpertsMode.mapped, slots=0, file_io=FileIo.buffered)
    assert plan(**mapped).startup.warm_bytes == 0
    found = plan(startup=Startup(warm=True), **mapped)
    assert found.startup.warm_bytes == found.experts.file_bytes > 0
    tight = plan(startup=Startup(warm=True), available=found.ram.used_bytes + small_config().hardware.headroom + 4096, **mapped)
    assert tight.startup.warm_bytes == tight.ram.limit_bytes - tight.ram.used_bytes < found.experts.file_bytes


@pytest.mark.parametrize(
    ("facts", "experts", "note"),
    [
        ({}, dict(mode=ExpertsMode.mapped, slots=0, file_io=FileIo.direct), "startup.warm=true is not used: experts.file_io=direct reads"),
        (dict(os="windows"), dict(mode=ExpertsMode.mapped, slots=0, file_io=FileIo.buffered), "not used: windows cannot be asked"),
        ({}, dict(mode=ExpertsMode.full_arena), "startup.warm=true has nothing to read: no expert stays in the file"),
    ],
)
def test_a_warm_page_cache_that_would_not_help_is_noted(facts: dict[str, Any], experts: dict[str, Any], note: str) -> None:
    found = plan(startup=Startup(warm=True), **facts, **experts)
    assert found.startup.warm_bytes == 0 and any(note in text for text in found.notes), found.notes


def test_a_purge_can_turn_the_choice() -> None:
    drive = dataclasses.replace(Drive(10e9, 0.2e9, 9e9), cached_share=1.0)
    assert plan(drive).startup.strategy == "unbuffered"
    assert plan(drive, os="windows").startup.strategy == "mapped"


def test_nothing_to_copy_is_stated_and_takes_no_buffers() -> None:
    for asked in (Strategy.auto, Strategy.unbuffered):
        found = plan(startup=Startup(asked), mode=ExpertsMode.mapped, slots=0)
        assert (found.startup.strategy, found.startup.stage_bytes, found.ram.part("start-up buffers")) == ("mapped", 0, 0)
        assert "does not apply: there are no slots to fill and no RAM copy" in because(found)


def test_a_file_tier_read_past_the_cache_takes_the_start_with_it() -> None:
    cached = dataclasses.replace(SATA, cached_share=1.0)
    direct = plan(cached, mode=ExpertsMode.mapped, slots=5, file_io=FileIo.direct)
    assert direct.startup.strategy == "unbuffered" and "auto does not apply: the file tier reads unbuffered already" in because(direct)
    assert plan(cached, mode=ExpertsMode.mapped, slots=5, file_io=FileIo.buffered).startup.strategy == "mapped"
    assert plan(cached, Startup(Strategy.mapped), mode=ExpertsMode.mapped, slots=5, file_io=FileIo.direct).startup.strategy == "mapped"


@pytest.mark.parametrize(("batch", "depth", "threads"), [(64, 2, 6), (7, 3, 1), (500, 1, 2)])
def test_stage_buffers_are_a_part_of_the_ram_budget(batch: int, depth: int, threads: int) -> None:
    asked = Startup(Strategy.unbuffered, fill_batch=batch, depth=depth, threads=threads)
    found, mapped = plan(startup=asked, slots=20), plan(startup=Startup(Strategy.mapped), slots=20)
    stride = max(layer.stride for layer in PACK.layers)
    assert found.startup.stage_bytes == found.ram.part("start-up buffers") == depth * min(batch, 20) * stride + threads * MiB
    assert mapped.ram.part("start-up buffers") == mapped.startup.stage_bytes == 0
    assert found.ram.used_bytes <= found.ram.limit_bytes


def test_auto_stays_mapped_where_the_buffers_do_not_fit() -> None:
    asked = Startup(depth=60, threads=60)
    assert plan(startup=asked, available=30 * MiB).startup.strategy == "mapped"
