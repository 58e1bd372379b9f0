"""The tables of a report as rows of text, the same for terminal, Markdown and HTML. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strata_recipes.bench.runs import Mark, Run
from strata_recipes.bench.summary import Summary
from strata_recipes.bench.words import difference_text, mean_text, value_text

_LOWEST = "memory.lowest_available_bytes"


@dataclass(frozen=True)
class Table:
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables(summary: Summary) -> list[Table]:
    """Figures with paired differences, what became of the runs, identity, each run."""
    return [_figures(summary), _counts(summary), _identity(summary), _runs(summary)]


def _figures(summary: Summary) -> Table:
    asked = summary.asked
    head = ["figure", *asked.arms, *(f"{other} less {asked.base}" for other in asked.others)]
    rows = [
        [
            key,
            *(mean_text(key, summary.figures[arm][key]) for arm in asked.arms),
            *(difference_text(key, summary.differences[other][key]) for other in asked.others),
        ]
        for key in asked.metrics
    ]
    title = "Mean ± standard deviation (runs); paired difference ± its own, [95 % bootstrap interval], ratio (pairs)"
    return Table(title, head, rows)


def _counts(summary: Summary) -> Table:
    """A mark that no run has is left out, but for the first two."""
    arms = list(summary.asked.arms)
    counts = {arm: summary.counts(arm) for arm in arms}
    shown = [mark.value for mark in Mark if mark is Mark.counted or any(counts[arm][mark.value] for arm in arms)]
    rows = [[word, *(str(counts[arm][word]) for arm in arms)] for word in shown]
    lowest = ["lowest available RAM", *(value_text(_LOWEST, summary.lowest_available_bytes[arm]) for arm in arms)]
    return Table(f"Runs of {summary.asked.pairs} each", ["", *arms], [*rows, lowest])


def _identity(summary: Summary) -> Table:
    return Table("Identity over all runs of all arms", ["checksum", "verdict"], [[key, word] for key, word in summary.identity.items()])


def _runs(summary: Summary) -> Table:
    keys = summary.asked.metrics
    head = ["pair", "arm", "became", *keys, "folder"]
    return Table("Each run, in order", head, [_run(run, keys) for run in summary.runs])


def _run(run: Run, keys: Sequence[str]) -> list[str]:
    became = run.mark.value + (f": {run.why}" if run.why else "")
    return [str(run.pair or "warm-up"), run.arm, became, *(value_text(key, run.figures.get(key)) for key in keys), run.folder]
