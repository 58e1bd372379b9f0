"""In which order a prompt is read, how large a super-chunk is and where it lies: at the edges, and never slower than predicted."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from strata_recipes.config.choices import Dense, ExpertsMode, Order, Residuals, Strategy
from strata_recipes.config.schema import Config, Experts, Prefill, Startup
from strata_recipes.decide import build_plan
from strata_recipes.errors import ConfigError, PlanError
from strata_recipes.plan.budget import KEPT_ROWS, KEPT_STREAMS, kept_parts, total
from strata_recipes.plan.notes import replaced
from strata_recipes.plan.plan import Plan, Throttle
from strata_recipes.plan.super_chunk import SuperChunk, super_chunks
from strata_recipes.units import MiB
from tests.plan.cases import machine, planned, small_config, small_index

PACK = small_index()
LAPTOP = "hardware=rtx3060_6gb kv.max_context=16384 kv=q4_0"


def plan(tokens: int = 100, chunk: int = 16, vram: int | None = 3 * MiB, experts: Experts | None = None, **asked: Any) -> Plan:
    config: Config = dataclasses.replace(small_config(), prefill=Prefill(chunk=chunk, **asked), experts=experts or Experts())
    return build_plan(config, machine(vram), PACK, tokens)


def total_s(found: Plan) -> float:
    """Start, prompt and reply: what candidates are compared by."""
    return found.predicted.ready_s + found.predicted.prefill_s + found.decode.max_new_tokens / found.predicted.decode_tokens_per_s


def because(found: Plan, name: str) -> str:
    return next(d.because for d in found.decisions if d.name == name)


@pytest.mark.parametrize("order", [Order.auto, Order.layer_major])
@pytest.mark.parametrize("tokens", [1, 15, 16])
def test_a_prompt_of_one_chunk_is_read_as_in_chunked_order(tokens: int, order: Order) -> None:
    found, chunked = plan(tokens, order=order), plan(tokens, order=Order.chunked)
    assert (found.prefill, found.vram, found.ram, found.experts) == (chunked.prefill, chunked.vram, chunked.ram, chunked.experts)
    assert f"a prompt of {tokens} tokens is one chunk of 16" in because(found, "prefill.order")
    assert ("layer_major was stated and is not used" in because(found, "prefill.order")) == (order is Order.layer_major)


@pytest.mark.parametrize(
    ("order", "tokens", "said"), [(Order.layer_major, 16, 1), (Order.layer_major, 17, 0), (Order.auto, 16, 0), (Order.chunked, 16, 0)]
)
def test_a_stated_order_that_is_not_used_is_told(order: Order, tokens: int, said: int) -> None:
    found, config = plan(tokens, order=order), small_config(prefill=Prefill(order=order))
    told = [sentence for sentence in replaced(config, found) if sentence.startswith("prefill=layer_major gives chunked here: ")]
    assert len(told) == said and all("a prompt of 16 tokens is one chunk of 16" in sentence for sentence in told)


def test_a_stated_start_that_has_nothing_to_do_is_told() -> None:
    stated = small_config(experts=Experts(mode=ExpertsMode.mapped, slots=0), startup=Startup(strategy=Strategy.unbuffered))
    (told,) = replaced(stated, build_plan(stated, machine(), small_index(), 16))
    assert told.startswith("startup=unbuffered gives mapped here: does not apply: there are no slots to fill")


def test_nothing_is_gained_where_every_expert_has_a_slot() -> None:
    found = plan(100, vram=64 * MiB, order=Order.layer_major)
    assert found.vram_slots == 96 and found.prefill.order == "chunked"
    assert "every expert has a VRAM slot" in because(found, "prefill.order")


@pytest.mark.parametrize("tokens", [17, 100, 1000])
def test_auto_takes_what_is_predicted_faster(tokens: int) -> None:
    auto, chunked, layer_major = (plan(tokens, order=order) for order in Order)
    totals = [total_s(found) for found in (chunked, layer_major)]
    assert total_s(auto) == min(totals)
    assert auto.prefill.order == ("layer_major" if totals[1] < totals[0] else "chunked")
    assert "chunked" in because(auto, "prefill.order") and "layer_major" in because(auto, "prefill.order")


def test_on_the_reports_laptop_a_long_prompt_reads_every_expert_once() -> None:
    auto, chunked = (planned(f"{LAPTOP} workload=synthetic workload.tokens=12_900 prefill={order}") for order in ("auto", "chunked"))
    assert (auto.prefill.order, auto.prefill.super_chunk) == ("layer_major", -(-12_900 // auto.prefill.chunk) * auto.prefill.chunk)
    assert chunked.predicted.prefill_s > 4 * auto.predicted.prefill_s
    assert auto.prefill.chunk == chunked.prefill.chunk  # the same grid, so the same bits


def test_what_a_super_chunk_keeps_is_counted_and_the_budget_holds() -> None:
    g, tokens = PACK.geometry, 100
    streams, rows = kept_parts(g, tokens)
    assert streams.num_bytes == tokens * 4 * 64 * 4
    assert rows.num_bytes == tokens * (2 * 64 * 4 + 4 * 4 + 4 * 72)
    for residuals, places in ((Residuals.vram, ("vram", "vram")), (Residuals.host, ("ram", "vram"))):
        found = plan(tokens, order=Order.layer_major, residuals=residuals)
        assert (found.prefill.super_chunk, found.prefill.residuals) == (112, residuals.value)
        budgets = {"vram": found.vram, "ram": found.ram}
        assert budgets[places[0]].part(KEPT_STREAMS) == streams.num_bytes and budgets[places[1]].part(KEPT_ROWS) == rows.num_bytes
        assert all(budget.used_bytes <= budget.limit_bytes for budget in budgets.values())
    alone = plan(tokens, vram=None, order=Order.layer_major)
    assert alone.prefill.residuals == "host" and alone.ram.part(KEPT_STREAMS) == streams.num_bytes


def test_the_largest_that_fits_where_the_whole_does_not() -> None:

    def layer_major(**asked: Any) -> Plan:
        return plan(
            1000, vram=4 * MiB, experts=Experts(slots=10), order=Order.layer_major, residuals=Residuals.vram, dense=Dense.resident, **asked
        )

    whole = layer_major()
    assert whole.prefill.super_chunk == 1008
    free = whole.vram.part("expert slots") + whole.vram.limit_bytes - whole.vram.used_bytes
    margin = free + total(kept_parts(PACK.geometry, 1000)) // 2
    less = layer_major(margin=margin)
    assert less.prefill.super_chunk % 16 == 0 and 480 <= less.prefill.super_chunk <= 500
    assert "3 passes" in because(less, "prefill.super_chunk")
    assert layer_major(margin=margin, super_chunk=less.prefill.super_chunk).prefill == less.prefill
    with pytest.raises(PlanError, match=rf"a super-chunk of {less.prefill.super_chunk + 16:,} tokens does not fit"):
        layer_major(margin=margin, super_chunk=less.prefill.super_chunk + 16)
    none = layer_major(margin=margin * 2)
    assert none.prefill.order == "chunked" and "does not fit with a margin" in because(none, "prefill.order")


@pytest.mark.parametrize(("asked", "tokens"), [("whole", 112), (32, 32), (96, 96), (4096, 112), ("auto", 112)])
def test_a_stated_super_chunk(asked: int | str, tokens: int) -> None:
    assert plan(100, order=Order.layer_major, super_chunk=asked).prefill.super_chunk == tokens


def test_a_super_chunk_off_the_grid_is_refused_with_its_neighbours() -> None:
    with pytest.raises(PlanError, match=r"super_chunk=40 is no multiple of prefill\.chunk=16: use 32 or 48"):
        plan(100, order=Order.layer_major, super_chunk=40)
    with pytest.raises(PlanError, match=r"super_chunk=9 .*: use 16"):
        plan(100, order=Order.layer_major, super_chunk=9)


def test_a_stated_placement_keeps_its_room() -> None:
    """experts=resident needs its RAM: a super-chunk shrinks rather than break it."""
    base = plan(2000, vram=None, order=Order.chunked, experts=Experts(ExpertsMode.resident))
    left = base.ram.limit_bytes - base.ram.used_bytes
    room = left - total(kept_parts(PACK.geometry, 1000))
    config = dataclasses.replace(small_config(), prefill=Prefill(Order.layer_major, 16), experts=Experts(ExpertsMode.resident))
    config.hardware.headroom = room
    found = build_plan(config, machine(None), PACK, 2000)
    assert found.experts.mode == "resident" and 960 <= found.prefill.super_chunk <= 1000


def test_candidates_are_the_largest_of_each_place() -> None:
    limits = {"vram": 160, "host": 320}
    found = super_chunks(Prefill(), 16, 1000, True, lambda one: one.tokens <= limits[one.residuals])
    assert found == [SuperChunk(320, "host")]
    assert super_chunks(Prefill(), 16, 100, True, lambda one: one.tokens <= limits[one.residuals]) == [
        SuperChunk(112, "vram"),
        SuperChunk(112, "host"),
    ]
    assert super_chunks(Prefill(), 16, 1000, False, lambda one: one.tokens < 32) == []


# how the file is read


MAPPED = "hardware=rtx3060_6gb experts=mapped experts.file_io=buffered workload=synthetic workload.tokens=4000"


def test_auto_reads_past_the_cache_where_that_is_predicted_faster() -> None:
    auto, through, past = (planned(f"{MAPPED} prefill.direct={direct}") for direct in ("auto", "false", "true"))
    assert total_s(auto) == min(total_s(through), total_s(past))
    assert auto.prefill.direct == (total_s(past) < total_s(through)) and auto.prefill.direct
    assert (past.prefill.direct_min, through.prefill.direct_min) == (0.5, None)
    assert planned(f"{MAPPED} prefill.direct_min=0.9").prefill.direct_min == 0.9
    slow = planned(f"{MAPPED} prefill=chunked hardware.drive.direct=0.1GB/s hardware.drive.faults=2GB/s")
    assert not slow.prefill.direct


def test_where_decode_reads_past_the_cache_a_prompt_does_too() -> None:
    found = planned(f"{MAPPED} experts.file_io=direct prefill.direct=false")
    assert (found.prefill.direct, found.prefill.direct_min) == (True, None)
    assert any("prefill.direct=false is not used" in note for note in found.notes)


def test_windows_does_not_tell_what_its_cache_holds() -> None:
    found = planned("hardware=rtx5090_32gb_windows experts=mapped workload=synthetic workload.tokens=4000")
    assert not found.prefill.direct and "Windows" in because(found, "prefill.direct")
    with pytest.raises(ConfigError, match=r"prefill\.direct=true is not built for Windows"):
        planned("hardware=rtx5090_32gb_windows prefill.direct=true")


def test_warm_and_direct_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match=r"prefill\.warm=true does not go with prefill\.direct=true"):
        planned(f"{MAPPED} prefill.direct=true prefill.warm=true")
    found = planned(f"{MAPPED} prefill.warm=true")
    assert found.prefill.warm and not found.prefill.direct


def test_without_experts_in_the_file_there_is_nothing_to_read() -> None:
    card = "hardware=h200 hardware.gpu.vram=30GiB experts=resident"
    found = planned(f"{card} prefill=layer_major prefill.direct=true prefill.warm=false workload=prompt_7k4")
    assert found.file_blobs == 0 and not (found.prefill.direct or found.prefill.prefetch or found.prefill.warm)
    assert any("prefill.direct=true has nothing to read" in note for note in found.notes)


def test_a_layer_is_read_ahead_into_buffers_of_its_own_where_ram_has_room() -> None:
    stride = 1_384_448
    ahead, late = (planned(f"{MAPPED} prefill.prefetch={prefetch} prefill=layer_major") for prefetch in ("true", "false"))
    assert (ahead.prefill.prefetch, late.prefill.prefetch) == (True, False)
    assert ahead.ram.part("stage buffers") == 512 * stride and late.ram.part("stage buffers") == 8 * stride
    assert not planned(f"{MAPPED} prefill=chunked").prefill.prefetch
    resident = planned("hardware=rtx5070_12gb workload=prompt_7k4 prefill=layer_major experts=resident")
    assert resident.ram.part("stage buffers") == 8 * stride  # nothing is read, so nothing ahead


def test_held_links_are_the_machines_rates_and_said_so() -> None:
    held = planned("hardware=rtx3060_6gb workload=prompt_7k4 emulate.links=throttle")
    assert held.throttle == Throttle(3.5e9, 0.34e9, 6.5e9)
    assert any("drive held to 3.50 GB/s direct and 0.34 GB/s by faults, PCIe to 6.50 GB/s" in line for line in held.emulate), held.emulate
    free = planned("hardware=rtx3060_6gb workload=prompt_7k4")
    assert free.throttle is None and "links: not held to the profile's rates" in free.emulate
