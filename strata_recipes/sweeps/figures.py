"""A finished job's figures as one flat dict, and what of them a sweeper optimizes. Measures nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from strata_recipes.results.metrics import Metrics

Figure = int | float | str
Objective = float | tuple[float, ...] | None
USUAL = ("ready_s", "prefill.tokens_per_s", "decode.tokens_per_s")
FORECAST = ("predicted.ready_s", "predicted.prefill_tokens_per_s", "predicted.decode_tokens_per_s")
_PLANNED = {"vram_slots": "experts.vram_slots", "ram_blobs": "experts.ram_blobs", "file_blobs": "experts.file_blobs"}


def known_metrics() -> list[str]:
    """Every key of metrics.json that may hold a number or a word."""
    return [key for key, _ in _flat(asdict(Metrics()), "")]


def job_figures(folder: Path) -> dict[str, Figure]:
    """What metrics.json of a results folder holds, dotted; of a job that only planned, what it predicts and where it puts experts."""
    measured = folder / "metrics.json"
    if measured.exists():
        return dict(_stated(json.loads(measured.read_text(encoding="utf-8"))))
    planned = folder / "plan.json"
    if not planned.exists():
        return {}
    plan = json.loads(planned.read_text(encoding="utf-8"))
    placed = {name: plan[key] for key, name in _PLANNED.items()}
    return placed | dict(_stated({"predicted": plan["predicted"]}))


def objective(figures: dict[str, Figure], metrics: Sequence[str]) -> Objective:
    """The metrics' values, a single one bare; None where one was not taken or is no number."""
    values = [figures.get(name) for name in metrics]
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    if not numbers or len(numbers) < len(metrics):
        return None
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def _stated(data: dict[str, Any]) -> Iterator[tuple[str, Figure]]:
    return ((key, value) for key, value in _flat(data, "") if isinstance(value, int | float | str))


def _flat(data: Any, key: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(data, dict):
        yield key, data
        return
    for name, value in data.items():
        yield from _flat(value, f"{key}.{name}" if key else name)
