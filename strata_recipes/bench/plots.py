"""The report's pictures: paired points, available RAM over time, bytes by tier. Values in, matplotlib figures out; saves nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strata_recipes.bench.runs import Run, Sample
from strata_recipes.bench.summary import Summary
from strata_recipes.bench.words import unit_for
from strata_recipes.units import GiB, MiB

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours: told apart by every kind of eye
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_TIERS = ("vram", "ram", "file")
_COLUMNS = 2
_BESIDE: Mapping[str, Any] = {"fontsize": 8, "loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "frameon": False}  # hides no line
_SHOWN_CHARS = 24  # of an arm's name


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def paired_points(summary: Summary) -> Figure:
    """A panel for each figure that was measured: a point a run, a line a pair, a bar at each arm's mean."""
    keys = [key for key in summary.asked.metrics if any(summary.figures[arm][key] for arm in summary.asked.arms)]
    figure, panels = _panels(max(1, len(keys)))
    for panel, key in zip(panels, keys, strict=False):
        _pairs(panel, summary, key)
    if not keys:
        _say(panels[0], "no run is counted")
    return figure


def ram_over_time(summary: Summary, samples: Sequence[tuple[Run, Sequence[Sample]]], low_bytes: int) -> Figure:
    """A line a run in its arm's colour, the watchdog's threshold dashed where it is near."""
    figure, (panel,) = _panels(1, wide=True)
    arms = list(summary.asked.arms)
    for run, rows in samples:
        style = "-" if run.counted else ":"
        shown = [row.available_bytes / GiB for row in rows]
        panel.plot([row.seconds for row in rows], shown, style, color=colour(arms.index(run.arm)), linewidth=1.2, alpha=0.8)
    highest = max((row.available_bytes for _, rows in samples for row in rows), default=0)
    panel.set_ylim(0, highest / GiB * 1.05 or 1)
    if low_bytes <= highest:
        panel.axhline(low_bytes / GiB, color="black", linestyle="--", linewidth=0.8)
        panel.annotate("watchdog", (0, low_bytes / GiB), xytext=(2, 3), textcoords="offset points", fontsize=8)
    _legend(panel, arms)
    panel.set_xlabel("seconds since the run's start (dotted: not counted)", fontsize=9)
    panel.set_ylabel("available RAM, GiB", fontsize=9)
    return figure


def bytes_by_tier(summary: Summary) -> Figure:
    """Where each arm's experts live, stacked; a mean of counted runs, whose plans are the same."""
    figure, (panel,) = _panels(1, wide=True)
    tiers: Mapping[str, Mapping[str, int]] = {run.arm: run.tiers for run in summary.measured if run.tiers}
    arms = [arm for arm in summary.asked.arms if arm in tiers]
    scale, name = (GiB, "GiB") if any(sum(tiers[arm].values()) >= GiB / 4 for arm in arms) else (MiB, "MiB")
    widest = max((sum(tiers[arm].values()) / scale for arm in arms), default=0)
    left = [0.0] * len(arms)
    for number, tier in enumerate(_TIERS):
        sizes = [tiers[arm].get(tier, 0) / scale for arm in arms]
        panel.barh([_short(arm) for arm in arms], sizes, left=left, label=tier, color=colour(number), height=0.6)
        for row, (start, size) in enumerate(zip(left, sizes, strict=True)):
            if size > 0.08 * widest:  # room for its number
                panel.text(start + size / 2, row, f"{size:,.3g}", ha="center", va="center", color="white", fontsize=9)
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    if arms:
        panel.legend(**_BESIDE)
        panel.invert_yaxis()
    else:
        _say(panel, "no run came to a plan")
    panel.set_xlabel(f"bytes of experts by tier, {name}", fontsize=9)
    return figure


def _pairs(panel: Axes, summary: Summary, key: str) -> None:
    arms = list(summary.asked.arms)
    means = [found.mean for arm in arms if (found := summary.figures[arm][key])]
    scale, name = unit_for(key, max(means, key=abs))
    points = {(run.pair, run.arm): value for run in summary.measured if run.counted and (value := run.figures.get(key)) is not None}
    for pair in sorted({pair for pair, _ in points}):
        line = [(at, points[pair, arm] / scale) for at, arm in enumerate(arms) if (pair, arm) in points]
        panel.plot(*zip(*line, strict=True), "-", color="0.7", linewidth=1, zorder=1)
        for at, value in line:
            panel.plot(at, value, "o", color=colour(at), markersize=6, zorder=2)
    for at, arm in enumerate(arms):
        if found := summary.figures[arm][key]:
            panel.hlines(found.mean / scale, at - 0.18, at + 0.18, color=colour(at), linewidth=2)
    panel.set_xticks(range(len(arms)), [_short(arm) for arm in arms])
    panel.set_xlim(-0.5, len(arms) - 0.5)
    panel.set_ylim(bottom=0, top=max(points.values()) / scale * 1.15 or 1)  # from 0, so that a small difference looks small
    panel.set_title(f"{key}, {name}" if name else key, fontsize=9)


def _panels(count: int, wide: bool = False) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure  # a second to import, and only a report needs it
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = 1 if wide else min(_COLUMNS, count)
    rows = -(-count // columns)
    size = (7.2 if wide or columns > 1 else 4.0, 3.0 if wide else 2.6 * rows)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.12))  # inches: a title stands off the panel above
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    for panel in panels[count:]:
        panel.set_visible(False)
    return figure, panels[:count]


def _legend(panel: Axes, arms: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=colour(number)) for number in range(len(arms))]
    panel.legend(lines, [_short(arm) for arm in arms], **_BESIDE)


def _short(arm: str) -> str:
    """A dollar would begin a formula."""
    text = arm if len(arm) <= _SHOWN_CHARS else arm[: _SHOWN_CHARS - 1] + "…"
    return text.replace("$", r"\$")


def _say(panel: Axes, text: str) -> None:
    panel.text(0.5, 0.5, text, ha="center", va="center", transform=panel.transAxes)
    panel.set_xticks([])
    panel.set_yticks([])
