"""mode=fit: does it fit, how fast will it be, what would help. One screen for one PC, or a line for every shipped profile."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from strata_recipes.config.compose import compose_config, conf_dir
from strata_recipes.config.schema import Config
from strata_recipes.decide import build_plan
from strata_recipes.decide.what_if import WhatIf, gains, remedies, what_if
from strata_recipes.errors import PlanError
from strata_recipes.machine.facts import Machine
from strata_recipes.machine.probe import resolve_hardware
from strata_recipes.modes.models import ModelFacts, model_facts, scale_index
from strata_recipes.modes.prepare import cached_share, drive_folder, ordered, prompt_tokens
from strata_recipes.modes.progress import console
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.plan import Plan
from strata_recipes.units import figure, gib

PROBED = ("auto", "cpu")  # profiles that are this PC


@dataclass(frozen=True)
class Fit:
    """One PC's answer: a plan, or why there is none."""

    machine: Machine
    plan: Plan | None
    why: str
    others: list[WhatIf]


def fit(config: Config, overrides: list[str]) -> int:
    """Prints the answer; exit code 2 where the one PC that was asked for cannot hold the model."""
    with model_facts(config.model) as facts:
        if config.mode.profiles:
            found = [fit_on(_on(config, name), facts) for name in profiles()]
            console().print(fits_table(config, found))
            return 0
        answer = fit_on(config, facts, others=True)
    console().print(fit_screen(config, answer))
    if answer.plan is None:
        raise PlanError(answer.why)
    return 0


def profiles() -> list[str]:
    """Every shipped PC."""
    return sorted(path.stem for path in Path(conf_dir(), "hardware").glob("*.yaml") if path.stem not in PROBED)


def fit_on(config: Config, facts: ModelFacts | Pack, others: bool = False) -> Fit:
    hardware, machine = resolve_hardware(config.hardware, drive_folder(facts), cached_share=lambda: cached_share(facts))
    resolved = dataclasses.replace(config, hardware=hardware)
    index, order = ordered(config, facts)
    tokens, scale = prompt_tokens(config, facts), scale_index(config)

    def plan(on: Machine) -> Plan:
        return build_plan(resolved, on, index, tokens, scale_of=scale, order=order)

    try:
        return Fit(machine, plan(machine), "", what_if(machine, plan) if others else [])
    except PlanError as error:
        return Fit(machine, None, str(error), remedies(machine, plan) if others else [])


def _on(config: Config, name: str) -> Config:
    return dataclasses.replace(config, hardware=compose_config([f"hardware={name}"]).hardware)


def fit_screen(config: Config, answer: Fit) -> Group:
    """Fits or not, where it lives, predicted speeds, what would change them."""
    plan = answer.plan
    if plan is None:
        helped = [f"{other.change} would make it fit" for other in answer.others]
        lines = [
            f"{config.model.name} does not fit {answer.machine.name}: {answer.why}",
            *(helped or ["none of more RAM or a larger card alone helps"]),
        ]
        return Group(*(Text(line) for line in lines))
    p, g = plan.predicted, plan.vram_slots + plan.ram_blobs + plan.file_blobs
    lines = [
        f"{plan.model.name} fits {plan.hardware}: {plan.experts.mode}, {plan.vram_slots / g:.0%} of the experts in VRAM, "
        f"{plan.ram_blobs / g:.0%} in RAM, {plan.file_blobs / g:.0%} in the file",
        f"predicted: ready after {figure(p.ready_s)} s ({p.start_bound}), {gib(p.lowest_available_bytes)} of RAM left at the least",
        f"predicted: a prompt of {plan.prefill.prompt_tokens:,} tokens in {figure(p.prefill_s)} s, "
        f"{figure(p.prefill_tokens_per_s)} tokens/s ({p.prefill_bound}), {plan.prefill.order}",
        f"predicted: decode {figure(p.decode_tokens_per_s)} tokens/s ({p.decode_bound})",
        *(f"{other.change}: {told}" for other in answer.others if other.predicted and (told := gains(p, other.predicted))),
    ]
    return Group(*(Text(line) for line in lines))


def fits_table(config: Config, found: list[Fit]) -> Group:
    """A line a PC."""
    title = f"{config.model.name}, predicted, not measured"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("PC", "fits", "VRAM", "RAM", "file", "ready s", "prompt tokens/s", "decode tokens/s", "prompt waits for"):
        table.add_column(name, overflow="fold", justify="left" if name in ("PC", "fits", "prompt waits for") else "right")
    for one in found:
        plan = one.plan
        if plan is None:
            table.add_row(one.machine.name, "no", "", "", "", "", "", "", one.why.split(" (")[0])
            continue
        p, total = plan.predicted, plan.vram_slots + plan.ram_blobs + plan.file_blobs
        shares = [f"{count / total:.0%}" for count in (plan.vram_slots, plan.ram_blobs, plan.file_blobs)]
        speeds = [figure(p.ready_s), figure(p.prefill_tokens_per_s), figure(p.decode_tokens_per_s)]
        table.add_row(one.machine.name, plan.experts.mode, *shares, *speeds, p.prefill_bound)
    return Group(table)
