"""Settings that contradict each other, as far as no model and no machine is needed to see it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from strata_recipes.config.choices import ExpertsMode, Sampler, Source
from strata_recipes.config.schema import Config

_SAMPLING = ("temperature", "top_k", "top_p", "seed")


def contradictions(config: Config) -> list[str]:
    """Every fault between keys, each with its remedy; empty for a config that may be planned."""
    return [*_experts(config), *_decode(config), *_workload(config), *_model(config), *_hardware(config)]


def _experts(config: Config) -> Iterator[str]:
    experts = config.experts
    if experts.mode is ExpertsMode.budget and experts.ram_budget is None:
        yield "experts.mode=budget needs a size: add experts.ram_budget=14GiB, or take experts=auto"
    if experts.mode is not ExpertsMode.budget and experts.ram_budget is not None:
        yield (
            f"experts.ram_budget={experts.ram_budget} applies to experts.mode=budget only, here it is {experts.mode.name}: "
            "take experts=budget, or leave the size out"
        )


def _decode(config: Config) -> Iterator[str]:
    for name in _SAMPLING:
        value = getattr(config.decode, name)
        if config.decode.sampler is Sampler.greedy and value is not None:
            yield f"decode.{name}={value} does not apply to decode.sampler=greedy: take decode=sample, or leave it out"
        if config.decode.sampler is Sampler.sample and value is None:
            yield f"decode.sampler=sample needs decode.{name}: take decode=sample, which states all four, or add it"


def _workload(config: Config) -> Iterator[str]:
    work = config.workload
    synthetic = work.tokens is not None
    if not (synthetic or work.token_ids_file or work.text_file or work.messages) and work.text is None:
        yield "workload has no prompt: add workload.text='...', workload.text_file=FILE, workload.token_ids_file=FILE or workload.tokens=N"
    if work.seed is not None and not synthetic:
        yield f"workload.seed={work.seed} applies to a synthetic prompt only: add workload.tokens=N, or leave it out"


def _model(config: Config) -> Iterator[str]:
    model = config.model
    if model.kind is Source.hf and model.source is None and model.pack is None:
        yield "model.kind=hf needs its folder: add model.source=DIR"
    if model.kind in (Source.synthetic, Source.declared) and model.source is not None:
        yield f"model.source={model.source!r} does not apply to model.kind={model.kind.name}: take model=gguf or model=hf, or leave it out"


def _hardware(config: Config) -> Iterator[str]:
    facts = config.hardware
    for part, name, whole, of in (
        ("available", facts.available, "ram", facts.ram),
        ("gpu.free", facts.gpu.free, "gpu.vram", facts.gpu.vram),
    ):
        if name is not None and of is not None and name > of:
            yield f"hardware.{part}={name} is more than hardware.{whole}={of}: lower the one or raise the other"
