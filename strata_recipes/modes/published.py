"""Published figures of one table and what the simulator says of each: cells as data, files in strata_recipes/assets/tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import strata_recipes
from strata_recipes.config.compose import compose_config
from strata_recipes.decide import decide
from strata_recipes.errors import ConfigError
from strata_recipes.machine.facts import Machine
from strata_recipes.machine.probe import resolve_hardware
from strata_recipes.pack.declared import declared_index
from strata_recipes.pack.index import PackIndex
from strata_recipes.simulate.load import Load
from strata_recipes.simulate.simulate import Simulator, Timed
from strata_recipes.units import GiB

FOLDER = Path(strata_recipes.__file__).parent / "assets" / "tables"
ALLOWED = 0.20  # of the published figure
ALLOWED_GIB = 1.5  # of available RAM


@dataclass(frozen=True)
class Cell:
    """One published figure. `sets`: the fact that it was used for; `left_out`: why it is not predicted; `missed`: why a miss is one."""

    table: str
    what: str
    arm: str
    figure: str
    published: float
    unit: str
    sets: str | None = None
    left_out: str | None = None
    missed: str | None = None
    allowed: float = ALLOWED


@dataclass(frozen=True)
class Arm:
    """A config, and what of the measured engine's run it cannot say: sizes and counts stated as inputs."""

    overrides: tuple[str, ...]
    inputs: Mapping[str, Any]


@dataclass(frozen=True)
class Published:
    title: str
    source: str
    notes: tuple[str, ...]
    arms: Mapping[str, Arm]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Compared:
    """A cell beside its prediction; None where it is left out."""

    cell: Cell
    predicted: float | None

    @property
    def error(self) -> float | None:
        """Relative; of available RAM the difference in GiB."""
        if self.predicted is None:
            return None
        away = self.predicted - self.cell.published
        return away if self.absolute else away / self.cell.published

    @property
    def absolute(self) -> bool:
        return self.cell.figure == "lowest_gib"

    @property
    def holds(self) -> bool | None:
        """None where nothing was asked: a cell that set a fact, or was left out."""
        if self.error is None or self.cell.sets:
            return None
        return abs(self.error) <= (ALLOWED_GIB if self.absolute else self.cell.allowed)


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def published(name: str) -> Published:
    path = FOLDER / f"{name}.yaml"
    if name not in names():
        raise ConfigError(f"mode.table={name} is no table of this package: use {', '.join(names())}")
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    common = tuple(data.get("common", ()))
    arms = {key: Arm((*common, *value["overrides"]), value.get("inputs", {})) for key, value in data["arms"].items()}
    cells = tuple(Cell(table=table, **cell) for table, found in data["tables"].items() for cell in found)
    return Published(data["title"], data["source"], tuple(data.get("notes", ())), arms, cells)


def compare(table: Published) -> list[Compared]:
    """Every cell's prediction; an arm is simulated once."""
    timed: dict[str, tuple[Timed, Load]] = {}
    found = []
    for cell in table.cells:
        if cell.left_out:
            found.append(Compared(cell, None))
            continue
        if cell.arm not in timed:
            timed[cell.arm] = simulate_arm(table.arms[cell.arm])
        found.append(Compared(cell, FIGURES[cell.figure](*timed[cell.arm])))
    return found


def simulate_arm(arm: Arm) -> tuple[Timed, Load]:
    """The plan of the arm's config, with its stated inputs in place of the plan's own."""
    machine, pack, load = planned_arm(arm)
    return Simulator(pack, machine).predict(load), load


def planned_arm(arm: Arm) -> tuple[Machine, PackIndex, Load]:
    config = compose_config(list(arm.overrides))
    hardware, machine = resolve_hardware(config.hardware, Path())
    pack = declared_index(config.model)
    load = decide(dataclasses.replace(config, hardware=hardware), machine, pack, config.workload.tokens).load
    return machine, pack, with_inputs(load, arm.inputs)


def with_inputs(load: Load, inputs: Mapping[str, Any]) -> Load:
    """`part.field: value` over the load's."""
    for key, value in inputs.items():
        part, name = key.split(".")
        old = getattr(getattr(load, part), name)  # a misspelt name is a bug of the table, told here
        value = type(old)(value) if isinstance(old, (int, float)) else value
        load = dataclasses.replace(load, **{part: dataclasses.replace(getattr(load, part), **{name: value})})
    return load


FIGURES: dict[str, Callable[[Timed, Load], float]] = {
    "ready_s": lambda timed, load: timed.start.ready_s,
    "fill_s": lambda timed, load: timed.start.fill_s,
    "fill_mb_s": lambda timed, load: load.start.fill_bytes / timed.start.fill_s / 1e6,
    "copy_s": lambda timed, load: timed.start.copy_s,
    "purge_s": lambda timed, load: timed.start.purge_s,
    "start_drive_gib": lambda timed, load: timed.start.drive_bytes / GiB,
    "lowest_gib": lambda timed, load: timed.ram.lowest_available_bytes / GiB,
    "peak_gib": lambda timed, load: timed.ram.peak_rss_bytes / GiB,
    "prompt_ms": lambda timed, load: timed.prompt.seconds * 1e3,
    "prompt_s": lambda timed, load: timed.prompt.seconds,
    "prompt_tok_s": lambda timed, load: load.prompt.tokens / timed.prompt.seconds,
    "prompt_gb": lambda timed, load: (timed.prompt.bytes.drive + timed.prompt.bytes.cached + timed.prompt.bytes.ram) / 1e9,
    "round_ms": lambda timed, load: timed.reply.round.seconds * 1e3,
    "decode_tok_s": lambda timed, load: load.reply.tokens_a_round / timed.reply.round.seconds,
}
