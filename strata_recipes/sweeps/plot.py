"""A sweep's metrics over what was varied, as SVG and PNG. Knows no job but its row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from strata_recipes.results.atomic import write_binary
from strata_recipes.sweeps.table import Row, is_bytes, varied
from strata_recipes.units import GiB, KiB, MiB, parse_bytes, parse_number, parse_rate

_WIDTH, _HEIGHT = 8.0, 2.6  # inches, the height of each metric
_READERS = (parse_number, parse_bytes, parse_rate)


def plot(folder: Path, rows: Sequence[Row], metrics: Sequence[str]) -> bool:
    """Writes summary.svg and summary.png; False, and nothing written, where no metric has a number."""
    drawn = [name for name in metrics if any(_number(row, name) is not None for row in rows)]
    if not drawn:
        return False
    picture = Figure(figsize=(_WIDTH, _HEIGHT * len(drawn)), layout="constrained")
    for axes, name in zip(picture.subplots(len(drawn), 1, squeeze=False)[:, 0], drawn, strict=True):
        _draw(axes, rows, name)
    write_binary(folder / "summary.png", lambda file: FigureCanvasAgg(picture).print_png(file))
    write_binary(folder / "summary.svg", lambda file: FigureCanvasSVG(picture).print_svg(file, metadata={"Date": None}))
    return True


def places(rows: Sequence[Row]) -> list[float] | None:
    """Where each job stands, where one setting alone varies and all its values are numbers, sizes or rates of one kind."""
    keys = varied(rows)
    if len(keys) != 1:
        return None
    texts = [row.settings.get(keys[0], "") for row in rows]
    for read in _READERS:
        try:
            return [float(read(text)) for text in texts]
        except ValueError:
            continue
    return None


def _draw(axes: Axes, rows: Sequence[Row], name: str) -> None:
    keys, at = varied(rows), places(rows)
    found = [(x, _number(row, name)) for x, row in zip(at or range(len(rows)), rows, strict=True)]
    unit, size = _unit(name, max(y for _, y in found if y is not None))
    points = sorted((x, y / size) for x, y in found if y is not None)
    axes.plot([x for x, _ in points], [y for _, y in points], "o-" if at else "o", color="tab:blue")
    labels = [", ".join(row.settings.get(key, "") for key in keys) or str(row.job.number) for row in rows]
    axes.set_xticks(at or range(len(rows)), labels, rotation=0 if at else 20, fontsize="small")
    axes.set_xlabel(", ".join(keys) or "job")
    axes.set_ylabel(f"{name}\n[{unit}]" if unit else name, fontsize="small")
    axes.set_ylim(0, 1.1 * max(y for _, y in points) or 1)
    axes.grid(alpha=0.3)


def _unit(name: str, largest: float) -> tuple[str, int]:
    """Of an axis of bytes, so that its numbers can be read."""
    if not is_bytes(name):
        return "", 1
    return next(((unit, size) for unit, size in (("GiB", GiB), ("MiB", MiB), ("KiB", KiB)) if largest >= size), ("B", 1))


def _number(row: Row, name: str) -> float | None:
    value = row.figures.get(name)
    return float(value) if isinstance(value, int | float) else None
