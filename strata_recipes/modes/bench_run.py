"""One run of one arm: page cache set, the other PC stood in for, rest, the child process, and what it left as a value."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strata_recipes.bench.judge import Left, at, judged
from strata_recipes.bench.runs import Run, Sample
from strata_recipes.bench.watchdog import Watchdog
from strata_recipes.config.bench_schema import Bench
from strata_recipes.config.choices import EmulateRam
from strata_recipes.config.leaves import plain
from strata_recipes.errors import ConfigError, PlanError
from strata_recipes.machine import ballast, memory
from strata_recipes.modes.bench_arms import Arm
from strata_recipes.modes.bench_cache import set_cache
from strata_recipes.modes.children import Ended, replay_command, watched
from strata_recipes.modes.emulated import room_bytes
from strata_recipes.modes.models import ready_pack
from strata_recipes.modes.prepare import prepare
from strata_recipes.results.figures import emulation
from strata_recipes.results.metrics import EmulatedMetrics
from strata_recipes.results.names import safe_name
from strata_recipes.results.record import ResultsFolder
from strata_recipes.units import GiB

_CHILD_BYTES = GiB  # what a run takes itself before its own ballast trims the rest: imports and kernels, 0.4 GiB


@dataclass(frozen=True)
class Order:
    """Which run this is."""

    place: int
    pair: int
    arm: Arm
    arm_folder: Path  # holds its resolved.yaml
    pack: Path


def run_one(order: Order, bench: Bench, folder: ResultsFolder) -> tuple[Run, tuple[Sample, ...]]:
    """The run, and the PC's available RAM while it lasted."""
    name = f"runs/{order.pair:02}-{order.arm.number}-{safe_name(order.arm.name)}"
    place = folder.path / name
    place.mkdir(parents=True)
    with _stood_in(order.arm):
        cached, fault = set_cache(bench.cache, order.pack)
        time.sleep(bench.settle_s)
        command = replay_command(order.arm_folder, place, order.arm.checkout)
        ended = watched(command, place / "out.txt", Watchdog(bench.stop_below, bench.stop_after_s))
    folder.write(f"{name}/out.txt", (place / "out.txt").read_text(encoding="utf-8", errors="replace"))
    left = _folder_of(place)
    documents = {key: _json(left / f"{key}.json") if left else None for key in ("plan", "metrics", "identity", "machine")}
    samples = _inside(left, order.arm) or ended.samples
    where = (left or place).relative_to(folder.path).as_posix()
    return _judged(order, bench, ended, fault, cached, documents, samples, where), samples


def _judged(
    order: Order, bench: Bench, ended: Ended, fault: str | None, cached: int | None, found: dict[str, Any], samples: Any, place: str
) -> Run:
    metrics, plan = found["metrics"], found["plan"]
    asked = plain(order.arm.config)
    mark, why = judged(Left(ended.exit_code, ended.last_line, asked, plan, metrics, ended.stopped, fault))
    lowest = min((sample.available_bytes for sample in samples), default=None)
    return Run(
        arm=order.arm.name,
        pair=order.pair,
        place=order.place,
        mark=mark,
        why=why,
        exit_code=ended.exit_code,
        seconds=round(ended.seconds, 3),
        figures={key: at(metrics or {}, key) for key in bench.metrics},
        identity=found["identity"] or {},
        lowest_available_bytes=at(metrics or {}, "memory.lowest_available_bytes") or lowest,
        cached_before_bytes=cached,
        tiers={tier: at(plan, f"experts.{tier}_bytes") for tier in ("vram", "ram", "file")} if plan else {},
        emulated=[line for line in [emulation(EmulatedMetrics(**metrics["emulated"]))] if line] if metrics else [],
        commit=_commit(found["machine"]),
        folder=place,
    )


@contextmanager
def _stood_in(arm: Arm) -> Iterator[None]:
    """emulate.ram=ballast: most of the ballast lies before the run starts, so that locking it is not in the run's times."""
    room = _room_bytes(arm)
    if room is None or room >= memory.available().num_bytes:  # in the second case the run itself says what is missing
        yield
        return
    with ballast.leaving(room):
        yield


def _room_bytes(arm: Arm) -> int | None:
    """What is to be left available; None where there is no ballast, or no plan, which the run will say."""
    if arm.config.emulate.ram is not EmulateRam.ballast:
        return None
    try:
        with ready_pack(arm.config.model) as pack:
            return room_bytes(prepare(arm.config, pack), pack.index) + _CHILD_BYTES
    except (ConfigError, PlanError):
        return None


def _folder_of(place: Path) -> Path | None:
    """The run's own results folder; none where it was refused before it had one."""
    return next((path.parent for path in sorted(place.glob("*/*/status.json"))), None)


def _json(path: Path) -> Any:
    """None where the run did not come to write it, or was killed while it did."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def _inside(left: Path | None, arm: Arm) -> tuple[Sample, ...]:
    """Samples of a run in a control group: what is available in there, only it can tell."""
    path = left / "samples.csv" if left else None
    if path is None or arm.config.emulate.ram is not EmulateRam.cgroup or not path.is_file():
        return ()
    rows = (line.split(",") for line in path.read_text(encoding="utf-8").splitlines()[1:])
    return tuple(Sample(float(row[0]), int(row[1])) for row in rows)


def _commit(machine: Any) -> str | None:
    source = at(machine or {}, "source") or {}
    return f"{source['commit']}{' and changes' if source.get('dirty') else ''}" if source.get("commit") else None
