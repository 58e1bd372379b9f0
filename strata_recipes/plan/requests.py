"""What a config asks for that cannot be had: all faults at once, before anything is sized. And what it states in vain."""

from __future__ import annotations

from collections.abc import Iterator

from strata_recipes.config.choices import (
    Arithmetic,
    Dense,
    Device,
    EmulateRam,
    ExpertsMode,
    FileIo,
    Order,
    Residuals,
    Sampler,
    Source,
    Template,
)
from strata_recipes.config.schema import Adapt, Config, Prefill
from strata_recipes.errors import ConfigError
from strata_recipes.machine.facts import Machine
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.compute import runs_on
from strata_recipes.plan.decode import draft_faults
from strata_recipes.plan.reply_rows import reply_faults
from strata_recipes.plan.startup import warms
from strata_recipes.plan.workload import stated_sources
from strata_recipes.units import gib

SAMPLE_ONLY = ("temperature", "top_k", "top_p", "seed")


def check_requests(config: Config, machine: Machine, pack: PackIndex, prompt_tokens: int) -> None:
    """ConfigError with every fault."""
    faults = [*_facts(machine), *_contradictions(config, machine, pack)]
    if prompt_tokens < 1:
        faults.append("the prompt is empty (0 tokens): state workload.text, workload.text_file, workload.messages or workload.tokens")
    if faults:
        raise ConfigError(faults)


def unused(config: Config, machine: Machine, file_blobs: int, file_io: str) -> Iterator[str]:
    """Settings that are stated and change nothing here: one sentence each."""
    won, *lost = stated_sources(config.workload) or ["text"]
    for name in lost:
        yield f"workload.{name} is not used: workload.{won} comes first"
    if won != "tokens" and config.workload.seed is not None:
        yield "workload.seed is not used: it belongs to workload.tokens"
    if machine.gpu is None:
        asked = config.hardware.gpu
        stated = [name for name in ("name", "capability", "bandwidth", "flops", "pcie") if getattr(asked, name) is not None]
        stated += ["reserve"] if asked.reserve != "auto" else []
        if stated:
            yield f"hardware.gpu.{', '.join(stated)}: not used, as this PC has no GPU"
    if file_blobs == 0 and config.experts.file_io is not FileIo.auto:
        yield f"experts.file_io={config.experts.file_io.value} has nothing to read: no expert stays in the file"
    if not config.experts.adapt.every:
        for name in (name for name in ("swaps", "decay") if getattr(config.experts.adapt, name) != getattr(Adapt(), name)):
            yield f"experts.adapt.{name}={getattr(config.experts.adapt, name):g} is not used: experts.adapt.every=0 leaves experts in place"
    if file_blobs and file_io == "direct":
        if config.prefill.direct is False:
            yield "prefill.direct=false is not used: experts.file_io=direct reads all past the page cache"
        for name in (name for name, asked in _warm(config) if asked):
            yield f"{name}=true is not used: experts.file_io=direct reads all past the page cache"
    if file_blobs and file_io != "direct" and config.startup.warm and not warms(machine.os, file_io):
        yield f"startup.warm=true is not used: {machine.os} cannot be asked to fill its page cache"
    for name in (name for name, asked in (("prefill.direct", config.prefill.direct is True), *_warm(config)) if asked and file_blobs == 0):
        yield f"{name}=true has nothing to read: no expert stays in the file"
    if config.decode.sampler is Sampler.sample and config.decode.temperature == 0:
        yield "decode.top_k, top_p and seed are not used: temperature 0 takes the most likely token"


def _warm(config: Config) -> tuple[tuple[str, bool], ...]:
    return ("prefill.warm", config.prefill.warm), ("startup.warm", config.startup.warm)


def _facts(machine: Machine) -> Iterator[str]:
    rates = {
        "cpu.bandwidth": machine.cpu.bandwidth,
        "cpu.flops": machine.cpu.flops,
        "drive.direct": machine.drive.direct,
        "drive.faults": machine.drive.faults,
        "drive.cached": machine.drive.cached,
        "efficiency.prompt": machine.efficiency.prompt,
        "efficiency.decode": machine.efficiency.decode,
    }
    if machine.gpu is not None:
        rates |= {f"gpu.{name}": getattr(machine.gpu, name) for name in ("bandwidth", "flops", "pcie")}
    for name, rate in rates.items():
        if rate <= 0:
            yield f"hardware.{name}={rate:g} never ends: state a rate above 0, or null to have it probed"
    if machine.ram_available_bytes > machine.ram_bytes:
        yield (
            f"hardware.available={gib(machine.ram_available_bytes)} is more than hardware.ram={gib(machine.ram_bytes)}: "
            f"lower the first or raise the second"
        )


def _contradictions(config: Config, machine: Machine, pack: PackIndex) -> Iterator[str]:
    if config.emulate.ram in (EmulateRam.cgroup, EmulateRam.ballast):
        asked = f"emulate.ram={config.emulate.ram.value}"
        if "available" in machine.probed:
            yield f"{asked} needs a PC to stand in for: state hardware.available, or take hardware=rtx3060_6gb or another named one"
        if config.model.scale_of is not None:
            yield f"{asked} does not go with the scale model of model.scale_of={config.model.scale_of}: add model.scale_of=null"
    experts, decode, workload = config.experts, config.decode, config.workload
    if experts.ram_budget is not None and experts.mode not in (ExpertsMode.auto, ExpertsMode.budget):
        yield f"experts.ram_budget={gib(experts.ram_budget)} does not go with experts.mode={experts.mode.value}: use experts=budget"
    total = pack.geometry.total_experts
    if isinstance(experts.slots, int) and experts.slots > total:
        yield f"experts.slots={experts.slots:,} is more than the model's {total:,} experts: use at most that, or auto"
    if experts.file_io is FileIo.direct and machine.os == "windows":
        yield "experts.file_io=direct is not built for Windows in this version: use buffered or auto"
    model = config.model
    if model.seed is not None and model.kind is not Source.synthetic:
        yield f"model.seed={model.seed} does not go with model.kind={model.kind.value}: only synthetic weights are drawn"
    threads, cores = config.compute.threads, machine.cpu.cores
    if isinstance(threads, int) and threads > cores:
        yield f"compute.threads={threads:,} is more than the {cores:,} cores of {machine.name}: use at most that, or auto"
    yield from _prefill(config.prefill, machine)
    for name in SAMPLE_ONLY:
        if decode.sampler is Sampler.greedy and getattr(decode, name) is not None:
            yield f"decode.{name}={getattr(decode, name)} does not go with decode.sampler=greedy: use decode=sample"
    yield from draft_faults(decode)
    won = next(iter(stated_sources(workload)), "text")
    if won in ("token_ids_file", "tokens") and workload.template is Template.chat:
        yield f"workload.template=chat does not go with workload.{won}, which is token ids already: use template=none"
    if config.compute.device is Device.cuda and machine.gpu is None:
        yield f"compute.device=cuda wants a GPU, {machine.name} has none: use compute.device=cpu"
    if runs_on(config.compute, machine) == "cuda":
        yield from reply_faults(pack.geometry)
    if config.compute.arithmetic is Arithmetic.bf16 and machine.gpu is not None and _version(machine.gpu.capability) < (8, 0):
        yield f"compute.arithmetic=bf16 wants compute capability 8.0, {machine.gpu.name} has {machine.gpu.capability}: use f16"


def _prefill(asked: Prefill, machine: Machine) -> Iterator[str]:
    if asked.order is Order.chunked:
        for name, value in (("super_chunk", asked.super_chunk), ("residuals", asked.residuals.value), ("dense", asked.dense.value)):
            if value != "auto":
                yield f"prefill.{name}={value} does not go with prefill.order=chunked: use prefill=layer_major"
    if asked.warm and asked.direct is True:
        yield "prefill.warm=true does not go with prefill.direct=true: what was warmed would be read past the page cache, state one of them"
    if asked.direct is True and machine.os == "windows":
        yield "prefill.direct=true is not built for Windows, which does not tell what its cache holds: use prefill.direct=auto or false"
    if asked.residuals is Residuals.vram and machine.gpu is None:
        yield f"prefill.residuals=vram wants a GPU, {machine.name} has none: use prefill.residuals=host"
    if asked.dense is Dense.streamed and machine.gpu is None:
        yield f"prefill.dense=streamed wants a GPU, {machine.name} has none: use prefill.dense=auto"


def _version(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split(".") if part.isdigit())
