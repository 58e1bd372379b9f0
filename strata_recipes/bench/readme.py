"""README.md of a bench's folder: the tables and what was not measured, for a person. Takes values, opens nothing."""

from __future__ import annotations

from collections.abc import Iterable

from strata_recipes.bench.summary import Summary
from strata_recipes.bench.tables import Table, tables


def readme(summary: Summary, name: str) -> str:
    """`name`: the folder below the results root."""
    asked = summary.asked
    parts = [
        f"# {_cell(asked.name)}",
        f"{asked.pairs} {'pair' if asked.pairs == 1 else 'pairs'}, order alternating, page cache {asked.cache}. "
        "Pictures: `report.html`; values: `bench.json`, `runs.csv`.",
        _list(f"{_cell(arm)}: {' '.join(f'`{word}`' for word in words) or 'as composed'}" for arm, words in asked.arms.items()),
        *(markdown(table) for table in tables(summary)),
        "Run it again, with this folder's path for FOLDER (here "
        f"`{name}` in the results root):\n\n    python run.py --config-dir FOLDER --config-name resolved",
        "What was not measured:",
        _list(summary.to_dict()["not_measured"]),
    ]
    return "\n\n".join(parts) + "\n"


def markdown(table: Table) -> str:
    lines = [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in [table.head, ["---"] * len(table.head), *table.rows]]
    return f"{table.title}:\n\n" + "\n".join(lines)


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
