"""A sweep's jobs and figures as rows: for a person the varied settings and a few metrics, for a program all of them in long form."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from strata_recipes.sweeps.figures import FORECAST, USUAL, Figure
from strata_recipes.sweeps.records import Counts, Job
from strata_recipes.units import figure, gib


@dataclass(frozen=True)
class Row:
    """A job with the settings that it was given, and its figures: none where it left none."""

    job: Job
    settings: dict[str, str]
    figures: dict[str, Figure]


def row(job: Job, figures: dict[str, Figure]) -> Row:
    """Settings by key, as they were written."""
    pairs = (line.lstrip("+").partition("=") for line in job.overrides)
    return Row(job, {key: value for key, _, value in pairs}, figures)


def varied(rows: Sequence[Row]) -> list[str]:
    """Keys whose value differs between jobs, in the order in which they were given."""
    keys = dict.fromkeys(key for each in rows for key in each.settings)
    return [key for key in keys if len({each.settings.get(key) for each in rows}) > 1]


def shown_metrics(rows: Sequence[Row], asked: Sequence[str]) -> list[str]:
    """The metrics asked for; without that the usual ones that some job has, or a plan's forecast."""
    if asked:
        return list(asked)
    for names in (USUAL, FORECAST):
        found = [name for name in names if any(name in each.figures for each in rows)]
        if found:
            return found
    return []


def long_csv(rows: Sequence[Row]) -> str:
    """One line a job and figure: number, state, folder, varied settings, key, value. A job without figures has one line without."""
    keys = varied(rows)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["job", "state", "folder", *keys, "key", "value"])
    for each in rows:
        head = [each.job.number, each.job.state.value, each.job.folder or "", *(each.settings.get(key, "") for key in keys)]
        for key, value in each.figures.items() or [("", "")]:
            writer.writerow([*head, key, value])
    return out.getvalue()


def cells(rows: Sequence[Row], metrics: Sequence[str]) -> list[list[str]]:
    """The table for a person, its header first."""
    keys = varied(rows)
    table = [["job", *keys, "state", *metrics, "folder"]]
    for each in rows:
        state = each.job.state.value + (" before" if each.job.resumed else "")
        values = [_cell(name, each.figures.get(name)) for name in metrics]
        table.append([str(each.job.number), *(each.settings.get(key, "") for key in keys), state, *values, each.job.folder or ""])
    return table


def readme(name: str, rows: Sequence[Row], counts: Counts, metrics: Sequence[str], plotted: bool) -> str:
    """README.md of a sweep: one screen, with what went wrong and what was not measured."""
    head, *body = cells(rows, metrics)
    lines = [_line(head), _line(["---"] * len(head)), *(_line(cell) for cell in body)]
    wrong = [f"* job {each.job.number}: {each.job.status.error}" for each in rows if each.job.status.error]
    empty = sum(not each.figures for each in rows)
    parts = [
        f"# Sweep {name}",
        f"Jobs: {counts}.",
        "\n".join(lines),
        *(["What went wrong:\n\n" + "\n".join(wrong)] if wrong else []),
        *(["![the metrics over what was varied](summary.svg)"] if plotted else []),
        f"`summary.csv` has every figure, one a line. Not measured: any spread, as each job ran once; "
        f"{empty} of {len(rows)} jobs left no figures.",
        "The same sweep with `sweep.resume=true` runs only the jobs that are not done.",
    ]
    return "\n\n".join(parts) + "\n"


def is_bytes(name: str) -> bool:
    """Whether a metric counts bytes."""
    return "bytes" in name.rpartition(".")[2]


def _cell(name: str, value: Figure | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return gib(value) if is_bytes(name) else figure(value)


def _line(found: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in found) + " |"
