"""One run of one arm as a value: what became of it, its figures, its identity. Knows no process and no folder's layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Mark(Enum):
    """What became of a run. Only `counted` ones enter a mean."""

    counted = "counted"
    refused = "refused"  # config or plan: nothing was started
    failed = "failed"  # files, device or memory, or an error of ours
    stopped = "stopped"  # by the watchdog
    killed = "killed"  # by a signal from elsewhere
    fell_back = "fell back"  # ran, but not as its arm asked
    not_as_cached = "other page cache"  # ran, but the page cache did not hold what bench.cache asks for
    other_tokens = "other tokens"  # ran, but computed something else than the first arm


EXIT_OF_MARK = {
    Mark.counted: 0,
    Mark.refused: 2,
    Mark.failed: 4,
    Mark.stopped: 4,
    Mark.killed: 4,
    Mark.fell_back: 5,
    Mark.not_as_cached: 5,
    Mark.other_tokens: 5,
}


@dataclass(frozen=True)
class Sample:
    """Available RAM of the PC so many seconds after the run's start."""

    seconds: float
    available_bytes: int


@dataclass(frozen=True)
class Run:
    """`pair` counts from 1, 0 is the warm-up; `place` is the run's place in the whole order, from 0. Figures by key of metrics.json."""

    arm: str
    pair: int
    place: int
    mark: Mark
    why: str
    exit_code: int
    seconds: float
    figures: Mapping[str, float | None] = field(default_factory=dict)
    identity: Mapping[str, str | None] = field(default_factory=dict)
    lowest_available_bytes: int | None = None
    cached_before_bytes: int | None = None
    tiers: Mapping[str, int] = field(default_factory=dict)  # bytes of experts in vram, ram, file, as planned
    emulated: Sequence[str] = ()
    commit: str | None = None
    folder: str = ""

    @property
    def counted(self) -> bool:
        return self.mark is Mark.counted
