"""A table of published figures beside their predictions, for a person and as JSON. Compares nothing itself."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from strata_recipes.modes.published import Compared, Published
from strata_recipes.units import figure


def comparison_table(table: Published, cells: Sequence[Compared]) -> Group:
    """Predicted, published and error of each cell, which cells set facts, what was missed and why."""
    parts: list[Table | Text] = [Text(table.title, style="bold"), Text(f"published: {table.source}")]
    parts += [Text(f"- {note}") for note in table.notes]
    for name in dict.fromkeys(cell.cell.table for cell in cells):
        parts.append(_one(name, [cell for cell in cells if cell.cell.table == name]))
    asked = [cell for cell in cells if cell.holds is not None]
    held = sum(bool(cell.holds) for cell in asked)
    parts.append(Text(f"{held} of {len(asked)} predicted cells hold their bound; {_used(cells)}"))
    parts += [
        Text(f"missed: {cell.cell.table}, {cell.cell.what}: {cell.cell.missed or 'not explained'}") for cell in asked if not cell.holds
    ]
    parts += [Text(f"left out: {cell.cell.table}, {cell.cell.what}: {cell.cell.left_out}") for cell in cells if cell.cell.left_out]
    return Group(*parts)


def _used(cells: Sequence[Compared]) -> str:
    used = [f"{cell.cell.table}, {cell.cell.what} ({cell.cell.sets})" for cell in cells if cell.cell.sets]
    return f"cells that set facts: {'; '.join(used) or 'none'}"


def _one(name: str, cells: Sequence[Compared]) -> Table:
    table = Table(title=name, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for column in ("cell", "predicted", "published", "unit", "error", ""):
        table.add_column(column, justify="right" if column in ("predicted", "published", "error") else "left", overflow="fold")
    for cell in cells:
        table.add_row(
            cell.cell.what,
            "-" if cell.predicted is None else figure(cell.predicted),
            f"{cell.cell.published:g}",
            cell.cell.unit,
            _error(cell),
            _verdict(cell),
        )
    return table


def _error(cell: Compared) -> str:
    if cell.error is None:
        return "-"
    return f"{cell.error:+.2f} GiB" if cell.absolute else f"{cell.error:+.1%}"


def _verdict(cell: Compared) -> str:
    if cell.cell.left_out:
        return "left out"
    if cell.cell.sets:
        return f"sets {cell.cell.sets.removeprefix('hardware.')}"
    return "holds" if cell.holds else "MISSED"


def comparison_json(table: Published, cells: Sequence[Compared]) -> str:
    rows = [dataclasses.asdict(cell.cell) | {"predicted": cell.predicted, "error": cell.error, "holds": cell.holds} for cell in cells]
    return json.dumps({"title": table.title, "source": table.source, "simulated": True, "cells": rows}, indent=1) + "\n"
