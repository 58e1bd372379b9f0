"""A simulation's timeline as an SVG: a lane a resource, dark where it is busy. Knows no plan and opens no file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LEFT, LANE, GAP, TOP = 900, 120, 22, 6, 40
COLOURS = ("#4c72b0", "#c44e52", "#8172b2", "#55a868", "#64b5cd", "#ccb974")


@dataclass(frozen=True)
class Bar:
    """One stretch of one lane; `share` of it the resource is busy."""

    lane: str
    label: str
    start_s: float
    stop_s: float
    share: float


def timeline(title: str, phases: Sequence[tuple[str, float]], bars: Sequence[Bar]) -> str:
    """`phases`: (name, when it ends), in order. Lanes in the order of their first bar."""
    lanes = list(dict.fromkeys(bar.lane for bar in bars))
    end = max([bar.stop_s for bar in bars] + [at for _, at in phases], default=0.0) or 1.0
    height = TOP + len(lanes) * (LANE + GAP) + 30
    scale = (WIDTH - LEFT - 20) / end
    rows = [_text(10, 18, title, 13)]
    for number, lane in enumerate(lanes):
        at = TOP + number * (LANE + GAP)
        rows.append(_text(10, at + 15, lane, 12))
        rows += [_bar(bar, at, scale, COLOURS[number % len(COLOURS)]) for bar in bars if bar.lane == lane]
    rows += [_mark(name, LEFT + at * scale, height) for name, at in phases]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *rows, "</svg>"]) + "\n"


def _bar(bar: Bar, top: int, scale: float, colour: str) -> str:
    x, width = LEFT + bar.start_s * scale, max(0.3, (bar.stop_s - bar.start_s) * scale)
    tip = escape(f"{bar.lane}: {bar.label}, {bar.start_s:.3g} to {bar.stop_s:.3g} s, {bar.share:.0%} busy")
    shape = f'x="{x:.2f}" y="{top}" width="{width:.2f}" height="{LANE}" fill="{colour}" fill-opacity="{max(0.04, min(1.0, bar.share)):.3f}"'
    return f"<rect {shape}><title>{tip}</title></rect>"


def _mark(name: str, x: float, height: int) -> str:
    line = f'<line x1="{x:.2f}" x2="{x:.2f}" y1="{TOP - 8}" y2="{height - 22}" stroke="#333" stroke-dasharray="3 3"/>'
    return line + _text(min(x, WIDTH - 20), height - 8, name, 11, "end")


def _text(x: float, y: float, text: str, size: int, anchor: str = "start") -> str:
    return f'<text x="{x:.2f}" y="{y:.2f}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>'
