"""What a caller may watch and steer while the engine works. Every hook may be left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from strata_recipes.machine import memory


@dataclass(frozen=True)
class Progress:
    """How far the start-up copies are: `step` is fill or copy, the rate in bytes a second since that step began."""

    step: str
    done_bytes: int
    total_bytes: int
    rate: float


def _available_bytes() -> int:
    return memory.available().num_bytes


@dataclass(frozen=True)
class Hooks:
    progress: Callable[[Progress], None] = lambda progress: None
    note: Callable[[str], None] = lambda sentence: None  # said once each: a read path that was refused, a changed number of threads
    log: Callable[[str], None] = lambda sentence: None  # each step, for the record alone
    available_bytes: Callable[[], int] = _available_bytes
