"""The two halves of a start, fill and copy, as values, and what they came to. Knows no way of reading."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from strata_recipes.engine.watching import Hooks, Progress
from strata_recipes.schedule.startup import Batch, Copy
from strata_recipes.tiers.blobs import BlobTier, FilledTier
from strata_recipes.tiers.lookup import Check

Copied = Callable[[int], None]  # told the bytes that came to their place


@dataclass(frozen=True)
class Step:
    """`name` is fill or copy; the copies go to their places in `tier`."""

    name: str
    copies: tuple[Copy, ...]
    tier: FilledTier


@dataclass(frozen=True)
class RamStep(Step):
    """The copy: reads land in their places."""

    tier: BlobTier


@dataclass(frozen=True)
class Steps:
    """What a start does, and how it is watched. `check`: against the pack's checksums, on the way in."""

    fill: Step
    copy: RamStep
    check: Check | None
    hooks: Hooks

    @property
    def both(self) -> tuple[Step, Step]:
        return self.fill, self.copy


@dataclass(frozen=True)
class Timings:
    """What one way of reading took; `fallback` says why it was not the planned one."""

    strategy: str
    fill_s: float
    copy_s: float
    extents: int
    purge_s: float = 0.0
    fallback: str | None = None


def num_extents(lists: Sequence[Sequence[Batch]]) -> int:
    return sum(len(batch.extents) for batches in lists for batch in batches)


class Stopwatch:
    """Seconds of a step, once it has ended."""

    seconds = 0.0


@contextmanager
def metered(step: Step, hooks: Hooks) -> Iterator[tuple[Copied, Stopwatch]]:
    """Tells progress with its rate, and takes the step's time."""
    began, watch, done = time.perf_counter(), Stopwatch(), 0

    def copied(num_bytes: int) -> None:
        nonlocal done
        done += num_bytes
        rate = done / max(time.perf_counter() - began, 1e-9)
        hooks.progress(Progress(step.name, done, step.tier.num_bytes, rate))

    yield copied, watch
    watch.seconds = time.perf_counter() - began
    if step.copies:
        hooks.log(f"{step.name}: {done} bytes in {watch.seconds:.3f} s, {done / max(watch.seconds, 1e-9) / 1e9:.2f} GB/s")
