"""Simulated time of a few resources: when each is free, how long it was busy. Reads no real clock.

A step that leaves all resources as far apart as it found them will do so again: `repeat` then counts the rest instead of walking it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

COMPUTE, DRIVE, CACHE, LINK, BACK, CPU, VAIN = range(7)
NAMES = ("compute", "drive", "page cache", "PCIe", "PCIe back", "processor", "")  # the last: of the drive's, for what is not used
SAME = 1e-9  # of a step's time: the last bits of sums


@dataclass(frozen=True)
class Span:
    """A stretch of simulated time with each resource's busy seconds in it."""

    label: str
    start_s: float
    stop_s: float
    busy_s: tuple[float, ...]


class Clock:
    """`free[r]`: when resource r can begin; `busy[r]`: seconds it worked. Starts at 0."""

    def __init__(self) -> None:
        self.free = [0.0] * len(NAMES)
        self.busy = [0.0] * len(NAMES)
        self.asked = 0.0  # when reading for the layer at work was allowed to begin
        self.spans: list[Span] = []

    @property
    def now(self) -> float:
        return self.free[COMPUTE]

    def work(self, resource: int, seconds: float) -> None:
        self.busy[resource] += seconds

    def span(self, label: str, start_s: float, before: list[float]) -> None:
        """Records what happened since `start_s`, when the resources had been busy for `before`."""
        self.spans.append(Span(label, start_s, self.now, tuple(b - a for a, b in zip(before, self.busy, strict=True))))

    def repeat(self, count: int, step: Callable[[], None]) -> None:
        """`step` that many times; once two in a row left the same distances, the others are added up."""
        shape: list[float] | None = None
        for done in range(1, count + 1):
            start, free, busy = self.now, list(self.free), list(self.busy)
            step()
            now = self._distances()
            if shape is not None and self._same(shape, now, self.now - start):
                self._jump(count - done, free, busy)
                return
            shape = now

    def _distances(self) -> list[float]:
        """From the compute's time to the others'; one that is free before anything may be asked of it is as good as then."""
        floor = min(self.asked, self.now)
        return [max(at, floor) - self.now for at in self.free] + [floor - self.now]

    @staticmethod
    def _same(a: list[float], b: list[float], scale: float) -> bool:
        return all(abs(x - y) <= SAME * (scale + abs(x)) for x, y in zip(a, b, strict=True))

    def _jump(self, times: int, free: list[float], busy: list[float]) -> None:
        passed = self.now - free[COMPUTE]
        self.free = [at + times * passed if at > self.asked else at for at in self.free]
        self.asked += times * passed
        self.busy = [now + times * (now - before) for now, before in zip(self.busy, busy, strict=True)]
