"""Figures in words, by what their key says of their unit. Measures nothing."""

from __future__ import annotations

from strata_recipes.bench.runs import Run
from strata_recipes.bench.statistics import Difference, Spread
from strata_recipes.units import GiB, MiB


def which(run: Run) -> str:
    return f"pair {run.pair}" if run.pair else "warm-up"


def unit(key: str) -> tuple[float, str]:
    """By which number a figure is divided to be shown, and the unit's name."""
    if key.endswith("_bytes") or key.startswith("prefill.expert_bytes"):
        return GiB, "GiB"
    if key.endswith("tokens_per_s"):
        return 1, "tokens/s"
    return (1, "s") if key.endswith(("_s", ".seconds")) else (1, "")


def unit_for(key: str, size: float) -> tuple[float, str]:
    """The same, with MiB for what would be a small part of a GiB."""
    scale, name = unit(key)
    return (MiB, "MiB") if name == "GiB" and abs(size) < GiB / 4 else (scale, name)


def mean_text(key: str, found: Spread | None) -> str:
    """`9.60 ± 0.80 s (n6)`; the spread is the sample's standard deviation."""
    if found is None:
        return "not measured"
    scale, name = unit_for(key, found.mean)
    std = "" if found.std is None else f" ± {number(found.std / scale)}"
    return f"{number(found.mean / scale)}{std} {name}".rstrip() + f" (n{found.n})"


def difference_text(key: str, found: Difference | None) -> str:
    """`-32.8 ± 1.8 s [-34.1, -30.9], 0.23 times (4 pairs)`."""
    if found is None:
        return "no pair"
    scale, name = unit_for(key, found.mean)
    std = "" if found.std is None else f" ± {number(found.std / scale)}"
    within = "" if found.low is None or found.high is None else f" [{_signed(found.low / scale)}, {_signed(found.high / scale)}]"
    ratio = "" if found.ratio is None else f", {found.ratio:.3g} times"
    return f"{_signed(found.mean / scale)}{std} {name}".rstrip() + f"{within}{ratio} ({found.n} {'pair' if found.n == 1 else 'pairs'})"


def value_text(key: str, value: float | None) -> str:
    if value is None:
        return "not measured"
    scale, name = unit_for(key, value)
    return f"{number(value / scale)} {name}".rstrip()


def number(value: float) -> str:
    """Three significant digits at least, no digit of a whole number lost."""
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{number(abs(value))}"
