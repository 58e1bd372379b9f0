"""README.md of a results folder: one screen for a person. Takes values, opens nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from strata_recipes.plan.plan import Plan
from strata_recipes.results.figures import Figure, emulation, figures
from strata_recipes.results.metrics import Metrics
from strata_recipes.results.status import Status


def readme(plan: Plan, metrics: Metrics, status: Status, name: str) -> str:
    """What ran, on what, the key figures, what is emulated, what was not measured, and how to run it again."""
    parts = [
        f"# {_cell(plan.model.name)} on {_cell(plan.hardware)}",
        _state(status),
        f"Prompt: {plan.prefill.prompt_tokens:,} tokens from `workload.{plan.workload.source}`; "
        f"up to {plan.decode.max_new_tokens:,} new tokens, {plan.decode.sampler}.",
        *(["Simulated: every figure below is predicted, nothing ran."] if metrics.simulated else []),
        _table(figures(plan, metrics)),
        _emulated(plan, metrics),
        _not_measured(metrics),
        f"Run it again, with this folder's path for FOLDER (here `{name}` in the results root):\n\n"
        "    python run.py --config-dir FOLDER --config-name resolved",
    ]
    return "\n\n".join(parts) + "\n"


def _state(status: Status) -> str:
    code = "" if status.exit_code is None else f", exit code {status.exit_code}"
    return f"State: {status.state.value}{code}." + (f" {status.error}" if status.error else "")


def _table(lines: list[Figure]) -> str:
    rows = [f"| {line.part} | {line.name} | {_cell(line.value)} |" for line in lines]
    return "\n".join(["| part | what | figure |", "|---|---|---|", *rows])


def _emulated(plan: Plan, metrics: Metrics) -> str:
    if metrics != Metrics():
        return emulation(metrics.emulated) or "Nothing is emulated: every fact is this machine's own."
    how = f"; planned to be stood in for: {'; '.join(plan.emulate)}" if plan.emulate else ""
    return f"Which facts are this machine's own is told in machine.json{how}."


def _not_measured(metrics: Metrics) -> str:
    missing = list(metrics.missing())
    if not missing:
        return "Everything in metrics.json was measured."
    if metrics == Metrics() or metrics.simulated:
        return "Nothing was measured."
    return f"Not measured or not applicable (null in metrics.json): {', '.join(_by_group(missing))}."


def _by_group(keys: Sequence[str]) -> Iterator[str]:
    """`startup.{purge_s, extents}` for keys of one group, so that the list fits a screen."""
    for group, members in groupby(keys, key=lambda key: key.rpartition(".")[0]):
        names = [key.rpartition(".")[2] for key in members]
        yield f"{group}.{{{', '.join(names)}}}" if group else ", ".join(names)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
