"""A clock for drives that are held to a rate: time passes where a link is waited for, and nowhere else. Knows no plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from strata_recipes.engine import prefill, readers, startup_steps
from strata_recipes.files.pace import Pace


class Clock:
    """The links' time: a transfer ends when its link would have moved it. Each look takes a nanosecond, so that no time is none."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 1e-9
        return self.now

    def pace(self, rate: float) -> Pace:
        clock = self

        class Held(Pace):
            @contextmanager
            def passing(self, num_bytes: float, rate: float | None = None) -> Iterator[None]:
                until = self._reserve(num_bytes / (rate or self.rate))
                yield
                clock.now = max(clock.now, until)

        return Held(rate, clock=self.perf_counter)


@pytest.fixture
def links_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts and starts are measured by it: no busy box changes a figure, and nobody waits."""
    clock = Clock()
    monkeypatch.setattr(readers, "Pace", clock.pace)
    for measuring in (prefill, startup_steps):
        monkeypatch.setattr(measuring, "time", clock)
