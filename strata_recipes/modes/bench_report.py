"""Writes a bench's report into its folder: JSON, CSV, pictures, report.html, README.md. Measures nothing."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from strata_recipes.bench.long_table import long_table
from strata_recipes.bench.page import page
from strata_recipes.bench.plots import bytes_by_tier, paired_points, ram_over_time
from strata_recipes.bench.readme import readme
from strata_recipes.bench.runs import Run, Sample
from strata_recipes.bench.summary import Summary
from strata_recipes.bench.tables import tables
from strata_recipes.bench.words import which
from strata_recipes.results.atomic import write_binary
from strata_recipes.results.record import ResultsFolder

_DPI = 120
_SAMPLES = "run,arm,pair,seconds,available_bytes\n"


def write_report(summary: Summary, samples: Sequence[tuple[Run, Sequence[Sample]]], folder: ResultsFolder) -> None:
    """Every form of the report."""
    pictures = {
        "paired": ("Paired points", paired_points(summary)),
        "available": ("Available RAM over time", ram_over_time(summary, samples, summary.asked.stop_below)),
        "tiers": ("Experts by tier", bytes_by_tier(summary)),
    }
    shown = {}
    for name, (title, figure) in pictures.items():
        shown[title] = _drawn(figure, "svg").decode("utf-8")
        folder.write(f"{name}.svg", shown[title])
        png = _drawn(figure, "png")
        write_binary(folder.path / f"{name}.png", lambda file, png=png: file.write(png))  # type: ignore[misc]
    folder.write("bench.json", json.dumps(summary.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    folder.write("runs.csv", long_table(summary))
    folder.write("available.csv", _SAMPLES + "".join(_rows(samples)))
    folder.write("report.html", page(summary, shown))
    folder.write("README.md", readme(summary, folder.name))


def terminal(summary: Summary) -> Group:
    """The tables but for the list of runs, and what is not counted."""
    shown = [_table(table.title, table.head, table.rows) for table in tables(summary)[:-1]]
    told = [Text(f"not counted: {run.arm}, {which(run)}: {run.mark.value}, {run.why}", style="yellow") for run in summary.not_counted()]
    return Group(*shown, *told)


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False)
    for cell in head:
        table.add_column(Text(cell), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _drawn(figure, form: str) -> bytes:  # type: ignore[no-untyped-def]  # matplotlib's, imported when a report is drawn
    import matplotlib

    buffer = io.BytesIO()
    # text stays text, and no date or random name: the same runs give the same picture
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "strata"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # an arm's name in a script that the font lacks is boxes in the PNG
        figure.savefig(buffer, format=form, dpi=_DPI, metadata={"Date": None} if form == "svg" else {"Software": None})
    return buffer.getvalue()


def _rows(samples: Sequence[tuple[Run, Sequence[Sample]]]) -> Sequence[str]:
    return [
        f'{run.place},"{run.arm.replace(chr(34), 2 * chr(34))}",{run.pair},{row.seconds:.3f},{row.available_bytes}\n'
        for run, rows in samples
        for row in rows
    ]
