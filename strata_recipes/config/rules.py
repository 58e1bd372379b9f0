"""Settings that contradict each other, as far as no model and no machine is needed to see it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from strata_recipes.config.choices import BenchCache, EmulateRam, ExpertsMode, ModeName, Sampler, Source
from strata_recipes.config.leaves import leaves
from strata_recipes.config.restated import probed_key
from strata_recipes.config.schema import Config, Model

MAX_SKEW = 5.0
_KEYS = frozenset(leaf.key for leaf in leaves(Config))
_SAMPLING = ("temperature", "top_k", "top_p", "seed")


def contradictions(config: Config) -> list[str]:
    """Every fault between keys, each with its remedy; empty for a config that may be planned."""
    return [*_experts(config), *_decode(config), *_workload(config), *_model(config), *_hardware(config), *_modes(config)]


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
    from_files = model.kind in (Source.gguf, Source.hf)
    if from_files and model.source is None and model.pack is None:
        wanted = "file: add model.source=FILE" if model.kind is Source.gguf else "folder: add model.source=DIR"
        yield f"model.kind={model.kind.name} needs its {wanted}, or model.pack=FOLDER of a pack that is there"
    if from_files:
        yield from _stated_in_vain(model)
    if model.skew is not None and model.skew > MAX_SKEW:
        yield f"model.skew={model.skew:g} is more than {MAX_SKEW:g}, where one expert takes every token: use 0 to 2"
    if model.kind in (Source.synthetic, Source.declared) and model.source not in (None, Model().source):
        yield f"model.source={model.source!r} does not apply to model.kind={model.kind.name}: take model=gguf or model=hf, or leave it out"


def _stated_in_vain(model: Model) -> Iterator[str]:
    """What is read from the files of a model that has some."""
    stated = [f"geometry.{name}" for name, value in vars(model.geometry).items() if value is not None]
    stated += [name for name in ("experts", "dense") if getattr(model, name)]
    for name in stated:
        yield f"model.{name} does not apply to model.kind={model.kind.name}, whose files say it: leave it out, or take model=synthetic"


def _hardware(config: Config) -> Iterator[str]:
    facts = config.hardware
    for part, size, whole, of in (
        ("available", facts.available, "ram", facts.ram),
        ("gpu.free", facts.gpu.free, "gpu.vram", facts.gpu.vram),
    ):
        if size is not None and of is not None and size > of:
            yield f"hardware.{part}={size} is more than hardware.{whole}={of}: lower the one or raise the other"

    unknown = [entry for entry in facts.probed if probed_key(entry) not in _KEYS]
    if unknown:
        yield f"hardware.probed names {', '.join(unknown)}, which no key of the config is: leave it out, a run fills it in"


def _modes(config: Config) -> Iterator[str]:
    """What a mode cannot do without; what it passes over is told by other_modes.py."""
    mode = config.mode.name
    if config.result is None and mode is ModeName.reproduce:
        yield "mode=reproduce needs the folder to run again: add result=results/run/FOLDER"
    if mode is ModeName.bench:
        yield from _bench(config)


def _bench(config: Config) -> Iterator[str]:
    bench = config.bench
    if not bench.arms:
        yield "mode=bench needs its arms: add for example bench.arms.a=[startup=mapped] bench.arms.b=[startup=unbuffered]"
    if len(bench.arms) == 1:
        (only,) = bench.arms
        yield (
            f"mode=bench compares arms and bench.arms.{only} is alone: add a second one (bench.arms.base=[] is the config as it stands), "
            f"or take mode=run"
        )
    for name in bench.checkouts:
        if name not in bench.arms:
            yield f"bench.checkouts.{name} is of no arm: known are {', '.join(bench.arms)}; add bench.arms.{name}=[], or leave it out"
    if bench.cache is BenchCache.warm and config.emulate.ram is EmulateRam.cgroup:
        yield (
            "bench.cache=warm does not go with emulate.ram=cgroup, which drops the pack from the page cache before each run: "
            "take bench.cache=cold, or another emulate.ram"
        )
