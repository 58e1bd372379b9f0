"""What became of a run, from what it left: exit code, plan, metrics, and what its arm asked for. Reads nothing itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from strata_recipes.bench.runs import Mark
from strata_recipes.errors import EXIT_DONE, EXIT_REFUSED

_ASKED = (  # leaf of the config, where the plan answers it, where the measurements do
    ("startup.strategy", "startup.strategy", "startup.strategy"),
    ("prefill.order", "prefill.order", "prefill.order"),
    ("experts.mode", "experts.mode", None),
    ("experts.slots", "vram_slots", "experts.vram_slots"),
    ("experts.file_io", "experts.file_io", None),
)
_PLACED = (("vram_slots", "experts.vram_slots"), ("ram_blobs", "experts.ram_blobs"))


@dataclass(frozen=True)
class Left:
    """What a run left. `exit_code` is negative for a signal; `stopped` and `cache` are sentences of who watched it."""

    exit_code: int
    last_line: str
    asked: Mapping[str, Any]
    plan: Mapping[str, Any] | None = None
    metrics: Mapping[str, Any] | None = None
    stopped: str | None = None
    cache: str | None = None


def judged(left: Left) -> tuple[Mark, str]:
    """The mark, and why in one sentence; a counted run has no why."""
    if left.stopped:
        return Mark.stopped, left.stopped
    if left.exit_code < 0:
        return Mark.killed, f"ended by signal {-left.exit_code}"
    if left.exit_code != EXIT_DONE:
        mark = Mark.refused if left.exit_code == EXIT_REFUSED else Mark.failed
        return mark, left.last_line or f"exit code {left.exit_code} without a word"
    if left.metrics is None or left.plan is None:
        return Mark.failed, "exit code 0, but metrics.json or plan.json is missing or not JSON"
    fallbacks = list(fell_back(left.asked, left.plan, left.metrics))
    if fallbacks:
        return Mark.fell_back, "; ".join(fallbacks)
    return (Mark.not_as_cached, left.cache) if left.cache else (Mark.counted, "")


def fell_back(asked: Mapping[str, Any], plan: Mapping[str, Any], metrics: Mapping[str, Any]) -> Iterator[str]:
    """Where a run did not do what its arm asked for, or its plan decided."""
    reason = at(metrics, "startup.fallback")
    if reason:
        yield f"the start fell back to {at(metrics, 'startup.strategy')} ({reason})"
    refused = at(metrics, "decode.fallback")
    if refused:
        yield f"the reply fell back to single visits ({refused})"
    for key, planned, done in _ASKED:
        wish = at(asked, key)
        if wish in (None, "auto"):
            continue
        for where, found in (("planned", at(plan, planned)), ("done", at(metrics, done) if done else None)):
            if found not in (None, wish) and not (reason and key == "startup.strategy"):
                yield f"{key}={wish} was asked, {found} was {where}"
    for planned, done in _PLACED:
        wanted, found = at(plan, planned), at(metrics, done)
        if found is not None and wanted is not None and found < wanted:
            yield f"{wanted} {planned} were planned, {found} were had"


def at(data: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key; None where a part of it is missing. A part that holds dots itself is found too."""
    value: Any = data
    parts = key.split(".")
    while parts:
        if not isinstance(value, Mapping):
            return None
        size = next((n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in value), 0)
        if not size:
            return None
        value = value[".".join(parts[:size])]
        parts = parts[size:]
    return value
