"""Placement: every mode on blobs of different sizes, and its refusals with numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata_recipes.config.choices import ExpertsMode
from strata_recipes.config.schema import Experts
from strata_recipes.errors import PlanError
from strata_recipes.plan.experts import Placement, Room, Sizes, placements
from strata_recipes.schedule.startup import default_order
from tests.plan.cases import small_index

PACK = small_index()
ORDER = default_order(PACK)
BLOBS = [PACK.layers[layer].blob_bytes for layer, _ in ORDER]
ALL = sum(BLOBS)


def place(mode: str, vram: int, ram: int, gpu: bool = True, **more: object) -> list[Placement]:
    asked = Experts(mode=ExpertsMode(mode), **more)  # type: ignore[arg-type]
    return placements(asked, Sizes(PACK, ORDER), Room(vram, ram, gpu, not gpu))


def test_slots_take_each_blob_at_its_own_layers_size() -> None:
    """No padding to the largest: R14's 211 GiB instead of 85."""
    assert len(set(BLOBS)) == 4
    (found,) = place("mapped", sum(BLOBS[:7]), 0)
    assert (found.vram_slots, found.vram_bytes) == (7, sum(BLOBS[:7]))
    (found,) = place("mapped", sum(BLOBS[:7]) - 1, 0)
    assert found.vram_slots == 6


def test_resident_holds_exactly_the_complement() -> None:
    room = ALL - sum(BLOBS[:10])
    (found,) = place("resident", sum(BLOBS[:10]), room)
    assert (found.vram_slots, found.ram_blobs, found.file_blobs, found.ram_bytes) == (10, len(BLOBS) - 10, 0, room)
    with pytest.raises(PlanError, match=r"ram is short by 1 B for experts\.mode=resident"):
        place("resident", sum(BLOBS[:10]), room - 1)


def test_full_arena_holds_the_slots_blobs_too() -> None:
    (found,) = place("full_arena", sum(BLOBS[:10]), ALL)
    assert (found.ram_start, found.ram_bytes, found.ram_blobs) == (0, ALL, len(BLOBS) - 10)
    with pytest.raises(PlanError, match="all experts take"):
        place("full_arena", sum(BLOBS[:10]), ALL - 1)


def test_a_budget_is_cut_at_the_last_whole_blob() -> None:
    budget = sum(BLOBS[3:9]) + 5
    (found,) = place("budget", sum(BLOBS[:3]), ALL, ram_budget=budget)
    assert (found.ram_blobs, found.ram_bytes) == (6, budget - 5)
    with pytest.raises(PlanError, match=r"experts\.ram_budget"):
        place("budget", 0, budget - 1, ram_budget=budget)


def test_stated_slots_that_do_not_fit_are_refused_with_the_most_that_do() -> None:
    assert place("mapped", sum(BLOBS[:7]), 0, slots=5)[0].vram_slots == 5
    with pytest.raises(PlanError, match=r"short by [\d.]+ KiB for experts\.slots=8: 7 slots fit"):
        place("mapped", sum(BLOBS[:7]), 0, slots=8)


def test_without_a_gpu_slots_lie_in_ram() -> None:
    assert place("mapped", 0, ALL, gpu=False)[0].vram_slots == 0
    (found,) = place("budget", 0, sum(BLOBS[:9]), gpu=False, slots=5)
    assert (found.vram_slots, found.ram_blobs) == (5, 4)
    with pytest.raises(PlanError, match="lie in RAM"):
        place("mapped", 0, sum(BLOBS[:5]) - 1, gpu=False, slots=5)


def test_auto_offers_what_fits() -> None:
    def modes(vram: int, ram: int) -> list[str]:
        return list(dict.fromkeys(p.mode for p in place("auto", vram, ram)))

    assert modes(sum(BLOBS[:9]), ALL) == ["full_arena", "resident", "budget", "mapped"]
    assert modes(sum(BLOBS[:9]), ALL - 1) == ["resident", "budget", "mapped"]
    assert {p.mode for p in place("auto", sum(BLOBS[:9]), ALL // 4)} == {"budget", "mapped"}
    assert [p.mode for p in place("auto", sum(BLOBS[:9]), 0)] == ["mapped"]
    assert [p.mode for p in place("auto", ALL, 0)] == ["resident"]


def test_with_more_ram_auto_has_every_share_that_it_had_with_less() -> None:
    def shares(ram: int) -> set[int]:
        return {p.ram_blobs for p in place("auto", sum(BLOBS[:9]), ram)}

    rest = ALL - sum(BLOBS[:9])
    assert shares(rest) >= shares(ALL) and shares(int(rest * 0.75)) <= shares(ALL)


@given(st.sampled_from([m.value for m in ExpertsMode]), st.integers(0, 2 * ALL), st.integers(0, 2 * ALL), st.booleans())
def test_no_placement_passes_its_room_and_all_experts_are_somewhere(mode: str, vram: int, ram: int, gpu: bool) -> None:
    try:
        found = place(mode, vram, ram, gpu)
    except PlanError:
        assert mode in ("full_arena", "resident")
        return
    for p in found:
        assert p.vram_slots + p.ram_blobs + p.file_blobs == len(BLOBS)
        assert p.vram_bytes <= (vram if gpu else 0) and p.ram_bytes <= ram
        assert p.vram_bytes == sum(BLOBS[: p.vram_slots])
        assert p.ram_bytes == sum(BLOBS[p.ram_start : p.vram_slots + p.ram_blobs])
        assert p.file_bytes == sum(BLOBS[p.vram_slots + p.ram_blobs :])
