"""A plan for the person at the keyboard: what the PC has, what fits, what was decided and why. Shows; decides nothing."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from strata_recipes.decide.what_if import WhatIf, gains
from strata_recipes.machine.facts import ESTIMATED, Machine
from strata_recipes.plan.plan import Budget, Plan
from strata_recipes.units import figure, gb_per_s, gib

WIDTH = 100


def plan_table(plan: Plan, machine: Machine, others: Sequence[WhatIf] = ()) -> Group:
    """Machine, budgets, tiers, decisions, prediction, what a better PC would give, and notes, in at most 100 columns."""
    head = Text(f"Plan: {plan.model.name} on {plan.hardware}", style="bold")
    return Group(
        head, _machine(machine), _budgets(plan), _tiers(plan), _decisions(plan), _predicted(plan), *_others(plan, others), *_notes(plan)
    )


def _table(title: str, *columns: tuple[str, str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, width=WIDTH, pad_edge=False)
    for name, side in columns:
        table.add_column(name, justify="right" if side == "right" else "left", overflow="fold")
    return table


def _machine(machine: Machine) -> Table:
    table = _table("This PC" if machine.probed else "The planned PC", ("fact", "left"), ("value", "left"), ("from", "left"))
    cpu, drive, gpu = machine.cpu, machine.drive, machine.gpu
    rows = [
        ("RAM", f"{gib(machine.ram_available_bytes)} available of {gib(machine.ram_bytes)}", "available"),
        ("processor", f"{cpu.cores} cores, memory at {gb_per_s(cpu.bandwidth)}", "cpu.bandwidth"),
        ("drive", f"{gb_per_s(drive.direct)} direct, {gb_per_s(drive.faults)} by faults, {gb_per_s(drive.cached)} cached", "drive.direct"),
    ]
    if gpu is not None:
        rows += [
            ("GPU", f"{gpu.name}, sm_{gpu.capability.replace('.', '')}, {gib(gpu.free_bytes)} free of {gib(gpu.vram_bytes)}", "gpu.free"),
            ("GPU links", f"{gb_per_s(gpu.bandwidth)} memory, {gb_per_s(gpu.pcie)} from page-locked RAM", "gpu.pcie"),
        ]
    else:
        rows.append(("GPU", "none", "gpu.vram"))
    for name, value, fact in rows:
        table.add_row(name, escape(value), _source(machine, fact))
    return table


def _source(machine: Machine, fact: str) -> str:
    if fact in machine.probed:
        return "probed"
    return "estimated" if fact + ESTIMATED in machine.probed else "stated"


def _budgets(plan: Plan) -> Table:
    table = _table("Budgets", ("memory", "left"), ("part", "left"), ("size", "right"), ("share", "right"))
    for budget in (plan.vram, plan.ram):
        if budget.limit_bytes == 0 and not budget.used_bytes:
            continue
        for i, part in enumerate(part for part in budget.parts if part.num_bytes):
            table.add_row(budget.name.upper() if i == 0 else "", part.name, gib(part.num_bytes), _share(part.num_bytes, budget))
        left = budget.limit_bytes - budget.used_bytes
        table.add_row("", "not used", gib(left), _share(left, budget))
        table.add_row("", Text("budget", style="bold"), Text(gib(budget.limit_bytes), style="bold"), "")
        table.add_section()
    return table


def _share(num_bytes: int, budget: Budget) -> str:
    return f"{num_bytes / budget.limit_bytes:.1%}" if budget.limit_bytes else ""


def _tiers(plan: Plan) -> Table:
    total = plan.vram_slots + plan.ram_blobs + plan.file_blobs
    table = _table("Where the experts live", ("tier", "left"), ("experts", "right"), ("size", "right"), ("of all", "right"))
    both = " (RAM holds those of VRAM too)" if plan.experts.ram_start is not None else ""
    rows = [
        ("VRAM slots", plan.vram_slots, plan.experts.vram_bytes),
        (f"RAM{both}", plan.ram_blobs, plan.experts.ram_bytes),
        (f"file, {plan.experts.file_io}", plan.file_blobs, plan.experts.file_bytes),
    ]
    for name, count, num_bytes in rows:
        table.add_row(name, f"{count:,}", gib(num_bytes), f"{count / total:.1%}")
    return table


def _decisions(plan: Plan) -> Table:
    table = _table("Decisions", ("what", "left"), ("chosen", "left"), ("because", "left"))
    table.columns[0].width, table.columns[1].width = 17, 14  # the reasons get the rest
    for decision in plan.decisions:
        value = f"{decision.value:,}" if isinstance(decision.value, int) else str(decision.value)
        table.add_row(decision.name, escape(value), escape(decision.because))
    for budget in (plan.vram, plan.ram):
        table.add_row(f"{budget.name} budget", gib(budget.limit_bytes), escape(budget.because))
    return table


def _predicted(plan: Plan) -> Table:
    table = _table("Predicted, not measured", ("step", "left"), ("prediction", "right"), ("waits for", "left"))
    new, p = plan.decode.max_new_tokens, plan.predicted
    table.add_row("ready (weights and experts in place)", f"{figure(p.ready_s)} s", p.start_bound)
    pace = f"{figure(p.prefill_s)} s, {figure(p.prefill_tokens_per_s)} tokens/s"
    table.add_row(f"prompt of {plan.prefill.prompt_tokens:,} tokens", pace, p.prefill_bound)
    table.add_row(f"decode of up to {new:,} tokens", f"{figure(p.decode_tokens_per_s)} tokens/s", p.decode_bound)
    table.add_row("lowest available RAM", gib(p.lowest_available_bytes), "")
    return table


def _others(plan: Plan, others: Sequence[WhatIf]) -> list[Text]:
    lines = [f"- {one.change}: {told}" for one in others if one.predicted and (told := gains(plan.predicted, one.predicted))]
    return [Text("With a better PC, predicted", style="bold"), *(Text(line) for line in lines)] if lines else []


def _notes(plan: Plan) -> list[Text]:
    emulated = [f"emulated here: {', '.join(plan.emulate)}; figures of such a run are not the real machine's"] if plan.emulate else []
    lines = [*emulated, *plan.notes]
    return [Text("Notes", style="bold"), *(Text(f"- {line}") for line in lines)] if lines else []
