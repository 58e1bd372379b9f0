"""The table that ends a run in the terminal. Takes values, measures nothing."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from strata_recipes.plan.plan import Plan
from strata_recipes.results.figures import emulation, figures
from strata_recipes.results.metrics import Metrics


def final_table(plan: Plan, metrics: Metrics, results: str) -> Group:
    """Plan, start-up, prompt, decode, and where the results lie."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for style in ("bold", "", ""):
        table.add_column(style=style, overflow="fold")
    shown = ""
    for figure in figures(plan, metrics):
        # Text, not str: names of models and folders may hold [brackets], which rich reads as markup
        table.add_row(Text("" if figure.part == shown else figure.part), Text(figure.name), Text(figure.value))
        shown = figure.part
    table.add_row(Text("results"), Text("folder"), Text(results))
    note = emulation(metrics.emulated)
    return Group(table, *([Text(note, style="yellow")] if note else []))
