"""What mode=fit found, for the person at the keyboard, as a page and as JSON. Plans nothing."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from strata_recipes.config.schema import Config
from strata_recipes.decide.what_if import WhatIf, gains
from strata_recipes.machine.facts import Machine
from strata_recipes.plan.plan import Plan
from strata_recipes.units import figure, gib

_COLUMNS = 120  # of the page


@dataclass(frozen=True)
class Asked:
    """What all the PCs are asked. `unstated_tokens`: of the prompt that stands in where none is stated."""

    model: str
    new_tokens: int
    unstated_tokens: int | None

    def prompt(self, tokens: int) -> str:
        return f"a prompt of {tokens:,} tokens" + (", as none is stated," if self.unstated_tokens else "")

    def notes(self) -> tuple[str, ...]:
        """For the plan."""
        if self.unstated_tokens is None:
            return ()
        return (f"no prompt is stated: mode=fit plans one of {self.unstated_tokens:,} tokens, state workload=prompt_32k or another",)


@dataclass(frozen=True)
class Fit:
    """One PC's answer: a plan, or why there is none. `config`: with that PC's facts as literals."""

    config: Config
    machine: Machine
    plan: Plan | None
    why: str
    others: Sequence[WhatIf]
    stated: bool = False  # the user's own PC, above the shipped ones

    @property
    def pc(self) -> str:
        return f"{self.machine.name}, as stated" if self.stated else self.machine.name


def fit_screen(asked: Asked, answer: Fit) -> Group:
    """Fits or not, where it lives, predicted speeds, what would change them."""
    plan = answer.plan
    if plan is None:
        helped = [f"{other.change} would make it fit" for other in answer.others]
        lines = [
            f"{asked.model} does not fit {answer.machine.name}: {answer.why}",
            *(helped or ["none of more RAM or a larger card alone helps"]),
        ]
        return Group(*(Text(line) for line in lines))
    p, g = plan.predicted, plan.vram_slots + plan.ram_blobs + plan.file_blobs
    lines = [
        f"{plan.model.name} fits {plan.hardware}: {plan.experts.mode}, {plan.vram_slots / g:.0%} of the experts in VRAM, "
        f"{plan.ram_blobs / g:.0%} in RAM, {plan.file_blobs / g:.0%} in the file",
        f"predicted: ready after {figure(p.ready_s)} s ({p.start_bound}), {gib(p.lowest_available_bytes)} of RAM left at the least",
        f"predicted: {asked.prompt(plan.prefill.prompt_tokens)} in {figure(p.prefill_s)} s, "
        f"{figure(p.prefill_tokens_per_s)} tokens/s ({p.prefill_bound}), {plan.prefill.order}",
        f"predicted: decode {figure(p.decode_tokens_per_s)} tokens/s ({p.decode_bound})",
        *(f"{other.change}: {told}" for other in answer.others if other.predicted and (told := gains(p, other.predicted))),
    ]
    return Group(*(Text(line) for line in lines))


def fits_table(asked: Asked, found: Sequence[Fit]) -> Group:
    """A line a PC."""
    tokens = next((one.plan.prefill.prompt_tokens for one in found if one.plan), asked.unstated_tokens)
    work = f"{asked.prompt(tokens)} and a reply of up to {asked.new_tokens:,}" if tokens else "no PC holds it"
    title = f"{asked.model}, predicted, not measured: {work}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("PC", "fits", "VRAM", "RAM", "file", "ready s", "prompt tokens/s", "decode tokens/s", "prompt waits for"):
        table.add_column(name, overflow="fold", justify="left" if name in ("PC", "fits", "prompt waits for") else "right")
    for one in found:
        table.add_row(one.pc, *_cells(one))
    return Group(table)


def _cells(one: Fit) -> list[str]:
    plan = one.plan
    if plan is None:
        return ["no", "", "", "", "", "", "", one.why.split(" (")[0]]
    p, total = plan.predicted, plan.vram_slots + plan.ram_blobs + plan.file_blobs
    shares = [f"{count / total:.0%}" for count in (plan.vram_slots, plan.ram_blobs, plan.file_blobs)]
    speeds = [figure(p.ready_s), figure(p.prefill_tokens_per_s), figure(p.decode_tokens_per_s)]
    return [plan.experts.mode, *shares, *speeds, p.prefill_bound]


def fit_page(asked: Asked, screen: Group, name: str) -> str:
    """README.md: the screen, what was not measured, how to ask again."""
    text = io.StringIO()
    Console(file=text, width=_COLUMNS).print(screen)
    shown = "\n".join(f"    {line}".rstrip() for line in text.getvalue().strip("\n").splitlines())
    parts = [
        f"# Whether {asked.model} fits",
        shown,
        "Nothing was measured: every figure is predicted.",
        f"Ask again, with this folder's path for FOLDER (here `{name}` in the results root):",
        "    python run.py --config-dir FOLDER --config-name resolved",
    ]
    return "\n\n".join(parts) + "\n"


def fit_json(asked: Asked, found: Sequence[Fit]) -> str:
    """The same for a program; `experts` and `predicted` are null where it does not fit."""
    return json.dumps(asdict(asked) | {"pcs": [_pc(one) for one in found]}, indent=1, ensure_ascii=False) + "\n"


def _pc(one: Fit) -> dict[str, object]:
    plan = one.plan
    return {
        "pc": one.pc,
        "fits": plan is not None,
        "why_not": one.why or None,
        "prompt_tokens": plan and plan.prefill.prompt_tokens,
        "experts": plan and {"mode": plan.experts.mode, "vram": plan.vram_slots, "ram": plan.ram_blobs, "file": plan.file_blobs},
        "predicted": plan and asdict(plan.predicted),
        "others": [asdict(other) for other in one.others],
    }
