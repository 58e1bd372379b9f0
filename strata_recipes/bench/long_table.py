"""runs.csv: one line a run, one column a figure, for the user's own tools. Pure."""

from __future__ import annotations

from strata_recipes.bench.identity import KEYS
from strata_recipes.bench.runs import Mark
from strata_recipes.bench.summary import Summary

_ENDED = ("place", "pair", "arm", "mark", "why", "exit_code", "seconds")
_FIRST = (*_ENDED, "lowest_available_bytes", "cached_before_bytes", "commit", "folder")


def long_table(summary: Summary) -> str:
    """CSV as RFC 4180 has it, LF at line ends; an empty cell is what was not measured."""
    head: list[object] = [*_FIRST, *summary.asked.metrics, *KEYS]
    rows: list[list[object]] = [
        [*(_plain(getattr(run, name)) for name in _FIRST), *map(run.figures.get, summary.asked.metrics), *map(run.identity.get, KEYS)]
        for run in summary.runs
    ]
    return "".join(",".join(map(_cell, row)) + "\n" for row in [head, *rows])


def _plain(value: object) -> object:
    return value.value if isinstance(value, Mark) else value


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if any(letter in text for letter in ',"\r\n') else text
