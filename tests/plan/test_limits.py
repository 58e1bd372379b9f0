"""Budgets of a PC, of a scale model on another PC, and of VRAM that stands in this PC's RAM."""

from __future__ import annotations

import dataclasses

import pytest

from strata_recipes.config.choices import ExpertsMode
from strata_recipes.config.schema import Experts
from strata_recipes.decide import build_plan
from strata_recipes.errors import PlanError
from strata_recipes.plan.limits import is_scaled, ram_limit, vram_limit
from strata_recipes.units import GiB, MiB
from tests.plan.cases import composed, index_of, machine, planned, small_config, small_index


@pytest.mark.parametrize(
    ("os", "vram", "reserve"),
    [("linux", 24 * GiB, 700 * MiB), ("windows", 24 * GiB, 1500 * MiB), ("linux", 4 * GiB, 512 * MiB), ("windows", 8 * GiB, 1 * GiB)],
)
def test_the_automatic_reserve(os: str, vram: int, reserve: int) -> None:
    config = small_config()
    config.hardware.gpu.reserve = "auto"
    assert vram_limit(config.hardware, machine(vram, os=os))[0] == vram - reserve


@pytest.mark.parametrize(("available", "headroom"), [(118, 4), (32, 4), (24, 3), (8, 1)])
def test_the_automatic_headroom(available: int, headroom: int) -> None:
    config = small_config()
    config.hardware.headroom = "auto"
    assert ram_limit(config.hardware, machine(available=available * GiB))[0] == (available - headroom) * GiB


def test_free_vram_bounds_the_card() -> None:
    pc = machine(8 * GiB)
    assert pc.gpu is not None
    config = small_config()
    for free in (3 * GiB, 9 * GiB):
        other = dataclasses.replace(pc, gpu=dataclasses.replace(pc.gpu, free_bytes=free))
        assert vram_limit(config.hardware, other)[0] == min(free, 8 * GiB)


def test_only_declared_budgets_shrink() -> None:
    real = index_of("qwen38_flash_next_q2_0")
    assert is_scaled(machine(), real)
    assert not is_scaled(machine(), None)
    assert is_scaled(machine(probed=frozenset({"drive.direct"})), real)
    for fact in ("ram", "available", "gpu.vram", "gpu.free"):
        assert not is_scaled(machine(probed=frozenset({fact})), real)


@pytest.mark.parametrize("hardware", ["rtx3060_6gb", "rtx5090_32gb_windows", "h200"])
def test_the_demo_holds_the_share_of_experts_that_the_real_model_would(hardware: str) -> None:
    """The point of scaling: the same fractions in every tier, though the demo's dense weights weigh far more beside its experts."""
    overrides = f"hardware={hardware} experts=budget experts.ram_budget=14GiB"
    demo, real = planned(overrides, "demo"), planned(overrides)
    for name in ("vram_slots", "ram_blobs", "file_blobs"):
        assert getattr(demo, name) / 384 == pytest.approx(getattr(real, name) / 24_576, abs=0.008)
    assert demo.model.scale == pytest.approx(index_of("demo").experts_bytes / 33_973_862_400)
    assert any("scale model of qwen38_flash_next_q2_0" in note for note in demo.notes)


def test_a_stated_ram_budget_is_the_real_pcs_too() -> None:
    plan = planned("hardware=rtx3060_6gb experts=budget experts.ram_budget=14GiB", "demo")
    assert plan.experts.ram_bytes == pytest.approx(14 * GiB * plan.model.scale, rel=0.01)


def test_a_pc_that_the_real_model_does_not_fit_is_refused_for_its_scale_model() -> None:
    """By what the real model lacks at the small one's size, which is less than 1 MiB."""
    short = r"vram is short by ([\d.]+ KiB) before any expert .* leaves -.* for its experts; at 1/3,200 -\1, plus"
    for vram in ("3GiB", "5400MiB"):
        with pytest.raises(PlanError, match=short):
            planned(f"hardware=rtx3060_6gb hardware.gpu.vram={vram}", "demo")


def test_a_probed_pc_is_its_own_size() -> None:
    config, _ = composed("model=demo hardware=rtx3060_6gb")
    pc = machine(24 * GiB, 24 * GiB, probed=frozenset({"available", "gpu.free"}))
    plan = build_plan(config, pc, index_of("demo"), 10, scale_of=index_of("qwen38_flash_next_q2_0"))
    assert plan.model.scale == 1.0 and plan.vram_slots == 384 and plan.emulate == ()


def test_vram_stated_on_a_pc_without_a_gpu_lies_in_its_ram() -> None:
    pc = machine(3 * MiB, 64 * MiB, probed=frozenset({"available", "gpu.bandwidth (estimated)"}))
    plan = build_plan(small_config(), pc, small_index(), 100)
    assert plan.vram_slots > 0 and plan.ram.part("stand-in for VRAM") == plan.vram.used_bytes
    assert "arena in RAM" in plan.emulate[0]
    with pytest.raises(PlanError, match=r"lower experts\.slots or hardware\.gpu\.vram"):
        build_plan(small_config(), dataclasses.replace(pc, ram_available_bytes=plan.vram.used_bytes), small_index(), 100)


def test_slots_without_a_gpu_are_an_arena_in_ram() -> None:
    config = dataclasses.replace(small_config(), experts=Experts(ExpertsMode.mapped, slots=9))
    plan = build_plan(config, machine(None), small_index(), 100)
    assert plan.vram_slots == 9 and plan.compute.device == "cpu"
    assert plan.vram.limit_bytes == plan.vram.used_bytes == plan.ram.part("slot arena") == plan.experts.vram_bytes > 0
