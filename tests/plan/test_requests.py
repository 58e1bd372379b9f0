"""What cannot be had is refused before anything is sized, all of it at once, and what is stated in vain is noted."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from strata_recipes.config.choices import (
    Arithmetic,
    Dense,
    Device,
    Draft,
    EmulateRam,
    ExpertsMode,
    FileIo,
    Order,
    Residuals,
    Sampler,
    Template,
)
from strata_recipes.config.schema import Compute, Config, Decode, Emulate, Experts, Message, Model, Prefill, Workload
from strata_recipes.decide import build_plan
from strata_recipes.errors import ConfigError, PlanError
from strata_recipes.machine.facts import Cpu, Drive, Gpu
from strata_recipes.plan.plan import Plan
from strata_recipes.plan.runnable import runnable
from tests.plan.cases import machine, planned, small_config, small_index

PACK = small_index()


def plan(config: Config, tokens: int = 100, **facts: Any) -> Plan:
    return build_plan(config, machine(**facts), PACK, tokens)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (dict(prefill=Prefill(Order.chunked, super_chunk=512)), "prefill.super_chunk=512 does not go with prefill.order=chunked"),
        (dict(prefill=Prefill(Order.chunked, residuals=Residuals.host)), "prefill.residuals=host does not go with"),
        (dict(prefill=Prefill(Order.chunked, dense=Dense.streamed)), "prefill.dense=streamed does not go with prefill.order=chunked"),
        (dict(emulate=Emulate(ram=EmulateRam.cgroup), model=Model(scale_of="big")), "emulate.ram=cgroup does not go with the scale model"),
        (dict(experts=Experts(ExpertsMode.mapped, ram_budget=5)), "does not go with experts.mode=mapped"),
        (dict(experts=Experts(slots=97)), "more than the model's 96 experts"),
        (dict(decode=Decode(temperature=0.5)), "decode.temperature=0.5 does not go with decode.sampler=greedy"),
        (dict(decode=Decode(seed=1)), "decode.seed=1"),
        (dict(decode=Decode(draft=Draft.mtp)), "decode.draft=mtp is not built in this version: use decode.draft=suffix, or none"),
        (dict(decode=Decode(draft_tokens=4)), "decode.draft_tokens=4 does not go with decode.draft=none: use decode.draft=suffix"),
        (dict(decode=Decode(draft=Draft.suffix, draft_tokens=8)), "decode.draft_tokens=8 is more than the 7 that a pass of 8 tokens can"),
        (dict(model=Model(seed=1)), "model.seed=1 does not go with model.kind=gguf"),
    ],
)
def test_refused(groups: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        plan(dataclasses.replace(small_config(), **groups))


def test_a_model_that_no_reply_on_a_card_can_be_computed_of_is_refused_there() -> None:
    """All that is wrong at once; nothing is where the CPU computes."""
    pack, config = small_index(num_experts=64, top_k=33, head_dim=12), small_config(compute=Compute(device=Device.cuda))
    with pytest.raises(ConfigError) as raised:
        build_plan(config, machine(), pack, 100)
    assert raised.value.faults == (
        "the model has 33 experts a token, a card's kernels for replies take at most 32: use compute.device=cpu",
        "the model has 12 values a head, a card's kernels for replies take a multiple of 8 to 256: use compute.device=cpu",
    )
    on_cpu = build_plan(small_config(compute=Compute(device=Device.cpu)), machine(), pack, 100)
    assert on_cpu.compute.runs_on == "cpu" and plan(config).compute.runs_on == "cuda"


@pytest.mark.parametrize(
    ("facts", "groups", "message"),
    [
        (dict(os="windows"), dict(experts=Experts(file_io=FileIo.direct)), "not built for Windows"),
        (dict(probed=frozenset({"available"})), dict(emulate=Emulate(ram=EmulateRam.ballast)), "needs a PC to stand in for"),
        (dict(drive=Drive(0, 1, 1)), {}, r"hardware\.drive\.direct=0 never ends"),
        (dict(cpu=Cpu(1, 1, 0)), {}, r"hardware\.cpu\.flops=0"),
        (dict(ram_bytes=1 << 20), {}, r"hardware\.available=.* is more than hardware\.ram=1\.00 MiB"),
        (dict(gpu=Gpu("old", "7.5", 1 << 30, 1 << 30, 1, 1, 1)), dict(compute=Compute(Arithmetic.bf16)), "capability 8.0, old has 7.5"),
        ({}, dict(workload=Workload(tokens=5, template=Template.chat)), "which is token ids already"),
        (dict(gpu=None), dict(prefill=Prefill(residuals=Residuals.vram)), "residuals=vram wants a GPU, pc has none"),
        (dict(gpu=None), dict(prefill=Prefill(dense=Dense.streamed)), "dense=streamed wants a GPU, pc has none"),
    ],
)
def test_refused_on_that_pc(facts: dict[str, Any], groups: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(dataclasses.replace(small_config(), **groups), **facts)


def test_all_faults_come_at_once() -> None:
    asked = Prefill(Order.chunked, super_chunk="whole", residuals=Residuals.host)
    config = dataclasses.replace(small_config(), prefill=asked)
    with pytest.raises(ConfigError) as caught:
        plan(config, tokens=0)
    assert len(caught.value.faults) == 3 and "the prompt is empty" in caught.value.faults[2]


@pytest.mark.parametrize(
    ("groups", "facts", "note"),
    [
        (dict(workload=Workload(tokens=5, text="x")), {}, "workload.text is not used"),
        (
            dict(workload=Workload(text="x", messages=[Message(content="y")])),
            {},
            "text is not used: workload.messages comes first",
        ),
        (dict(workload=Workload(text="x", seed=3)), {}, "workload.seed is not used"),
        (dict(experts=Experts(file_io=FileIo.direct)), dict(vram=64 << 20), "experts.file_io=direct has nothing to read"),
        (dict(decode=Decode(Sampler.sample, temperature=0.0)), {}, "temperature 0 takes the most likely token"),
        ({}, dict(vram=None), "hardware.gpu.reserve: not used"),
    ],
)
def test_what_is_stated_in_vain_is_noted(groups: dict[str, Any], facts: dict[str, Any], note: str) -> None:
    found = plan(dataclasses.replace(small_config(), **groups), **facts)
    assert any(note in text for text in found.notes), found.notes


def test_what_can_be_planned_but_not_run() -> None:
    runnable(plan(small_config()))
    with pytest.raises(PlanError, match="has no weights"):
        runnable(planned("hardware=h200"))


def test_sampling_is_settled_in_the_plan() -> None:
    greedy = plan(small_config()).decode
    assert (greedy.sampler, greedy.temperature, greedy.top_k, greedy.top_p, greedy.seed) == ("greedy", 0.0, 0, 1.0, 0)
    config = dataclasses.replace(small_config(), decode=Decode(Sampler.sample, max_new_tokens=9, top_k=7))
    drawn = plan(config).decode
    assert (drawn.temperature, drawn.top_k, drawn.top_p, drawn.seed, drawn.max_new_tokens) == (0.6, 7, 0.95, 0, 9)


def test_the_workloads_digest_follows_what_is_read_and_nothing_else() -> None:
    def digest(**changes: Any) -> str:
        return plan(dataclasses.replace(small_config(), workload=Workload(**changes))).workload.digest

    assert digest(text="a") == digest(text="a") != digest(text="b")
    assert digest(tokens=5) == digest(tokens=5, text="b") != digest(tokens=5, seed=1)
    assert digest(text="a", template=Template.none) != digest(text="a")
    assert digest(text="\ud800") != digest(text="a")  # a half character from a narrow locale must not end in a traceback
