"""Whether this PC holds a plan: what a run really takes of RAM, where VRAM has a stand-in and where there is none."""

from __future__ import annotations

import pytest

from strata_recipes.config.compose import compose_config
from strata_recipes.errors import DeviceError
from strata_recipes.machine.memory import Available
from strata_recipes.modes.holds import check_holds, ram_needed
from strata_recipes.modes.models import model_facts
from strata_recipes.modes.prepare import prepare
from strata_recipes.pack.index import PackIndex
from strata_recipes.pack.layout import TOKEN_EMBEDDING
from strata_recipes.plan.plan import Plan


def planned(*overrides: str) -> tuple[Plan, PackIndex]:
    config = compose_config(["model=qwen38_flash_next_q2_0", *overrides])
    with model_facts(config.model) as facts:
        return prepare(config, facts).plan, facts.index


def test_a_planned_card_lies_in_ram_with_its_dense_weights_as_float32() -> None:
    plan, index = planned("hardware=h200")
    stored = {t.name: t.num_bytes for t in index.dense if t.name != TOKEN_EMBEDDING}
    widened = ram_needed(plan, index) - plan.ram.used_bytes - plan.vram.used_bytes
    padding = plan.vram.part("dense weights") - sum(stored.values())
    assert 0 <= padding < 256 * len(stored)
    exact = sum(t.num_bytes for t in index.dense if t.format == "F32")
    # Q8_0 takes 34 bytes for 32 values, float32 128; F32 tensors grow by nothing
    assert widened + padding == (sum(stored.values()) - exact) // 34 * (128 - 34)


def test_without_a_card_the_ram_budget_is_all_there_is() -> None:
    plan, index = planned("hardware=h200", "hardware.gpu.vram=0")
    assert ram_needed(plan, index) == plan.ram.used_bytes
    check_holds(plan, index, Available(plan.ram.used_bytes, "MemAvailable"))
    with pytest.raises(DeviceError, match=r"1\.0 MiB short") as told:
        check_holds(plan, index, Available(plan.ram.used_bytes - (1 << 20), "a cgroup"))
    assert "a cgroup" in str(told.value)
    assert told.value.exit_code == 4
