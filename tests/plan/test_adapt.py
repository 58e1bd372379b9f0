"""Experts that change places: planned where something can move, with the memory that it takes, refused nowhere, told everywhere."""

from __future__ import annotations

import pytest

from strata_recipes.plan.adapt import NOTE
from strata_recipes.plan.budget import EXCHANGE
from strata_recipes.plan.plan import AdaptPlan, Decision, Plan
from tests.plan.cases import planned

LAPTOP, MODEL = "hardware=rtx3060_6gb workload=prompt_7k4", "qwen38_flash_next_q2_0"


def plan(words: str) -> Plan:
    return planned(f"{LAPTOP} {words}", MODEL, 7400)


def decided(found: Plan) -> Decision | None:
    return next((one for one in found.decisions if one.name == "experts.adapt.every"), None)


def test_off_takes_nothing_and_says_nothing() -> None:
    found = plan("experts=budget experts.ram_budget=10GiB")
    assert found.experts.adapt is None and not found.experts.counted and found.ram.part(EXCHANGE) == 0
    assert decided(found) is None and NOTE not in found.notes


def test_on_takes_one_blob_of_ram_and_says_why() -> None:
    still = plan("experts=budget experts.ram_budget=10GiB")
    found = plan("experts=budget experts.ram_budget=10GiB experts.adapt.every=16 experts.adapt.swaps=5")
    assert found.experts.adapt == AdaptPlan(16, 5, 0.9)
    assert found.ram.part(EXCHANGE) == found.experts.vram_bytes // found.vram_slots
    assert found.ram.used_bytes == still.ram.used_bytes + found.ram.part(EXCHANGE) <= found.ram.limit_bytes
    assert (found.vram_slots, found.ram_blobs) == (still.vram_slots, still.ram_blobs)
    told = decided(found)
    assert told is not None and told.value == 16 and f"{found.vram_slots:,} slots" in told.because and "up to 5 of" in told.because
    assert NOTE in found.notes


def test_what_is_left_to_the_file_needs_no_buffer() -> None:
    found = plan("experts=mapped experts.adapt.every=16")
    assert found.experts.adapt is not None and found.ram.part(EXCHANGE) == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("experts.slots=0", "no expert has a VRAM slot to give up"),
        ("hardware.gpu.vram=0", "no expert has a VRAM slot to give up"),
        ("hardware.gpu.vram=141GiB hardware.gpu.free=141GiB", "every expert has a VRAM slot"),
    ],
)
def test_off_where_nothing_can_move(words: str, why: str) -> None:
    found = plan(f"{words} experts=mapped experts.adapt.every=16")
    assert found.experts.adapt is None and found.ram.part(EXCHANGE) == 0 and NOTE not in found.notes
    told = decided(found)
    assert told is not None and told.value == 0 and why in told.because


def test_what_belongs_to_it_is_noted_where_it_is_off() -> None:
    notes = plan("experts.adapt.swaps=3 experts.adapt.decay=0.5").notes
    for name in ("swaps=3", "decay=0.5"):
        assert any(note.startswith(f"experts.adapt.{name} is not used") for note in notes)


def test_a_profile_to_keep_has_choices_counted() -> None:
    found = plan("experts.profile_save=mine.npz")
    assert found.experts.counted and found.experts.adapt is None
