"""hardware/<name>.yaml and startup/<name>.yaml from what was measured: each number with its command, its day and its spread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strata_recipes.calibrate.measured import Measured, wins
from strata_recipes.calibrate.probes import DEPTHS, SIZES, direct_key
from strata_recipes.units import MiB, gb_per_s

MARK = "# Measured by mode=calibrate"
_RATES = {"drive": ("direct", "faults", "cached"), "cpu": ("bandwidth", "flops"), "gpu": ("bandwidth", "flops", "pcie")}


@dataclass(frozen=True)
class Told:
    """What the system says of itself. `card` is (name, capability, VRAM bytes); None where there is none."""

    os: str
    ram_bytes: int
    cores: int
    card: tuple[str, str, int] | None


@dataclass(frozen=True)
class Source:
    """What makes a number checkable: how to measure it again, and when it was."""

    command: str
    day: str


def hardware_yaml(name: str, told: Told, found: Mapping[str, Measured], own: tuple[int, int], source: Source) -> str:
    """A profile of this PC. What is free at a start (RAM, VRAM, page cache) is left open, so that it is looked up each time."""
    drive = _rates("drive", found, own, source)
    system = f"# told by the system; {source.day}, {source.command}"
    lines = [
        f"{MARK}: each rate is the median of its rounds, interleaved, with the least and the largest.",
        f"name: {name}",
        f"os: {told.os} {system}",
        f"ram: {told.ram_bytes} {system}",
        "cpu:",
        f"  cores: {told.cores} {system}",
        *_rates("cpu", found, own, source),
        "gpu:",
        *_card(told, found, own, source, system),
        *(["drive:", *drive] if drive else ["# the drive was not measured: its rates are left open"]),
    ]
    return "\n".join(lines) + "\n"


def startup_yaml(found: Mapping[str, Measured], own: tuple[int, int], source: Source) -> str | None:
    """Other sizes and depths of direct reads, where they win over the program's by more than the spread; None where none does."""
    if direct_key(*own) not in found:
        return None
    before = found[direct_key(*own)]
    settings = [(size, depth) for size in SIZES for depth in DEPTHS]
    best = max(settings, key=lambda each: found[direct_key(*each)].median)
    after = found[direct_key(*best)]
    if not wins(after, before):
        return None
    why = f"{gb_per_s(after.median)} against {gb_per_s(before.median)} with {own[0] // MiB} MiB and {own[1]} threads"
    lines = [
        f"{MARK}: it wins by more than the spread.",
        "strategy: auto",
        f"merge: {best[0] // MiB}MiB {_comment(after, source)}; {why}",
        f"threads: {best[1]} {_comment(after, source)}; {why}",
    ]
    return "\n".join(lines) + "\n"


def _rates(group: str, found: Mapping[str, Measured], own: tuple[int, int], source: Source) -> list[str]:
    named = {f"{group}.{name}": name for name in _RATES[group]}
    keys = {key: direct_key(*own) if key == "drive.direct" else key for key in named}
    return [f"  {named[key]}: {found[keys[key]].median:.4g} {_comment(found[keys[key]], source)}" for key in named if keys[key] in found]


def _card(told: Told, found: Mapping[str, Measured], own: tuple[int, int], source: Source, system: str) -> list[str]:
    if told.card is None:
        return [f"  vram: 0 {system}"]
    name, capability, vram = told.card
    lines = [f'  name: "{name}" {system}', f'  capability: "{capability}" {system}', f"  vram: {vram} {system}"]
    pageable = found.get("gpu.pcie pageable")
    lines += _rates("gpu", found, own, source)
    return lines + ([f"  # from pageable memory: {pageable.median:.4g} {_comment(pageable, source)}"] if pageable else [])


def _comment(of: Measured, source: Source) -> str:
    low, high = min(of.values), max(of.values)
    return f"# median of {len(of.values)}, {low:.4g} to {high:.4g}; {source.day}, {source.command}"
