"""Slabs of dense weights, and when a plan streams them: never past a budget, and only where that makes a super-chunk larger."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from strata_recipes.config.choices import Dense, Order, Residuals
from strata_recipes.config.schema import Experts, Prefill
from strata_recipes.decide import build_plan, decide
from strata_recipes.pack.layout import TOKEN_EMBEDDING
from strata_recipes.plan.budget import AFTERWARDS, DENSE, ON_CALL, Demand, buffer_parts, fixed_parts, total
from strata_recipes.plan.dense import PART_ALIGNMENT, layer_slab_bytes, slab_bytes, slabs, streaming_bytes
from strata_recipes.plan.plan import Plan
from tests.plan.cases import index_of, machine, planned, small_config, small_index

PACK = small_index()
TRUE = "qwen38_true_synthetic"
# a card of 6 GiB and 27 GiB of RAM
LAPTOP = (
    "hardware=rtx3060_6gb hardware.gpu.vram=6844MiB hardware.gpu.reserve=700MiB hardware.ram=27GiB hardware.available=27GiB "
    "experts=mapped experts.file_io=buffered kv=fp16 compute=bf16 workload=synthetic decode.max_new_tokens=8 prefill=layer_major"
)


def because(found: Plan, name: str) -> str:
    return next(d.because for d in found.decisions if d.name == name)


def small(tokens: int = 1000, vram: int = 3 << 20, **asked: Any) -> Plan:
    prefill = Prefill(chunk=16, order=Order.layer_major, residuals=Residuals.vram, **asked)
    config = dataclasses.replace(small_config(), prefill=prefill, experts=Experts(slots=0))
    return build_plan(config, machine(vram), PACK, tokens)


@pytest.mark.parametrize("name", ["small", TRUE, "qwen38_flash_next_iq2_xs"])
def test_slabs_hold_every_dense_tensor_but_the_embedding_once(name: str) -> None:
    pack = PACK if name == "small" else index_of(name)
    found = slabs(pack)
    assert len(found) == pack.geometry.num_layers + 1
    places = [place for slab in found for place in slab.places]
    assert sorted(place.name for place in places) == sorted(t.name for t in pack.dense if t.name != TOKEN_EMBEDDING)
    for layer, slab in enumerate(found[:-1]):
        assert all(place.name.startswith(f"blk.{layer}.") for place in slab.places)
    for slab in found:
        ends = [place.offset + place.num_bytes for place in slab.places]
        assert all(place.offset % PART_ALIGNMENT == 0 for place in slab.places)
        assert all(end <= place.offset for end, place in zip(ends, slab.places[1:], strict=False)) and ends[-1] <= slab.num_bytes
    sizes = {t.name: (t.num_bytes, 4 * math.prod(t.shape)) for t in pack.dense}
    assert all(place.num_bytes == sizes[place.name][place.widened] for place in places)


@pytest.mark.parametrize("residuals", ["vram", "host"])
@pytest.mark.parametrize("tokens", [0, 512, 4096, 51_500])
def test_streamed_parts_are_the_larger_of_a_prompts_and_a_replys(tokens: int, residuals: str) -> None:
    pack = index_of(TRUE)
    base = Demand("cuda", "bf16", "fp16", 53_248, 512, 1, kept_tokens=tokens, residuals=residuals)
    resident, streamed = (fixed_parts(pack, dataclasses.replace(base, streamed=streamed)) for streamed in (False, True))
    prompt = total(resident.vram) - slab_bytes(pack) + streaming_bytes(pack)
    no_prompt = dataclasses.replace(base, kept_tokens=0, residuals="vram")
    buffers = buffer_parts(pack.geometry, 512, 53_248, 1, "cuda"), buffer_parts(pack.geometry, 1, 53_248, 1, "cuda")
    reply = total(fixed_parts(pack, no_prompt).vram) - total(buffers[0]) + total(buffers[1])
    assert total(streamed.vram) == max(prompt, reply)
    assert total(streamed.ram) == total(resident.ram) + layer_slab_bytes(pack)


def test_a_long_prompt_in_little_vram_is_one_pass() -> None:
    found = planned(f"{LAPTOP} workload.tokens=51_500", TRUE)
    assert (found.prefill.dense, found.prefill.chunk, found.prefill.super_chunk) == ("streamed", 512, 51_712)
    resident = planned(f"{LAPTOP} workload.tokens=51_500 prefill.dense=resident", TRUE)
    assert resident.prefill.super_chunk < 4_096 and resident.predicted.prefill_s > 2 * found.predicted.prefill_s
    why = because(found, "prefill.dense")
    assert "one pass of 51,712 tokens" in why and f"passes of {resident.prefill.super_chunk:,} tokens" in why and "3.83 GiB" in why
    for budget in (found.vram, found.ram):
        assert budget.used_bytes <= budget.limit_bytes
    assert found.ram.part(ON_CALL) == layer_slab_bytes(index_of(TRUE))


def test_what_fits_beside_resident_weights_is_not_streamed() -> None:
    found = planned(f"{LAPTOP} workload.tokens=12_900", TRUE)
    assert found.prefill.dense == "resident" and found.prefill.super_chunk == 13_312
    assert "no super-chunk is larger without them" in because(found, "prefill.dense")
    assert found.ram.part(ON_CALL) == found.vram.part(AFTERWARDS) == 0


def test_stated_either_way() -> None:
    resident, streamed = (small(dense=dense) for dense in (Dense.resident, Dense.streamed))
    assert (resident.prefill.dense, streamed.prefill.dense) == ("resident", "streamed")
    assert resident.vram.part(DENSE) == slab_bytes(PACK) and streamed.vram.part(DENSE) == streaming_bytes(PACK)
    assert because(streamed, "prefill.dense").startswith("stated: streamed")


def test_every_budget_holds_and_a_whole_prompt_is_streamed_only_where_it_would_not_fit_beside_the_weights() -> None:
    whole: list[tuple[int, str]] = []
    for vram in range(2_120_000, 4_400_000, 120_000):
        found = small(vram=vram)
        assert found.vram.used_bytes <= found.vram.limit_bytes and found.ram.used_bytes <= found.ram.limit_bytes
        if found.prefill.super_chunk >= 1000:
            whole.append((found.prefill.super_chunk, found.prefill.dense))
            fits_resident = small(vram=vram, dense=Dense.resident).prefill.super_chunk >= 1000
            assert (found.prefill.dense == "resident") == fits_resident
    assert {dense for _, dense in whole} == {"resident", "streamed"}


def test_slabs_on_their_way_up_are_predicted() -> None:
    """By a prompt with weights on call, each pass has all of them over PCIe, and the reply once more."""
    config = dataclasses.replace(
        small_config(), prefill=Prefill(chunk=16, order=Order.layer_major, super_chunk=496, residuals=Residuals.vram)
    )
    timed = []
    for dense in (Dense.resident, Dense.streamed):
        asked = dataclasses.replace(config, prefill=dataclasses.replace(config.prefill, dense=dense), experts=Experts(slots=0))
        timed.append(decide(asked, machine(4 << 20), PACK, 1000))
    slow, fast = timed[1].timed.prediction.prefill_s, timed[0].timed.prediction.prefill_s
    gpu = machine(4 << 20).gpu
    assert gpu is not None
    up = sum(t.num_bytes for t in PACK.dense if t.name.startswith("blk.")) / gpu.pcie
    assert up * 0.99 <= slow - fast <= 4 * up * 1.01
