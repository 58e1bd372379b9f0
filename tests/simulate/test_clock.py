"""Counting alike steps gives what walking them gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata_recipes.simulate.clock import COMPUTE, DRIVE, LINK, Clock
from strata_recipes.simulate.line import line_ends


def step(clock: Clock, compute: float, drive: float, link: float) -> None:
    """A layer: compute, then a line whose reading may begin when the step before began."""
    start, asked = clock.now, clock.asked
    clock.asked = start
    clock.free[COMPUTE] += compute
    free = [max(clock.free[DRIVE], asked), max(clock.free[LINK], asked), clock.now]
    clock.free[DRIVE], clock.free[LINK], clock.free[COMPUTE] = line_ends(20, [drive, link, compute / 20], free, 8)
    clock.work(DRIVE, 20 * drive)
    clock.work(COMPUTE, 2 * compute)


@given(st.integers(1, 50), st.floats(0, 5), st.floats(0, 1), st.floats(0, 1))
def test_counted_is_walked(count: int, compute: float, drive: float, link: float) -> None:
    counted, walked = Clock(), Clock()
    counted.repeat(count, lambda: step(counted, compute, drive, link))
    for _ in range(count):
        step(walked, compute, drive, link)
    assert counted.now == pytest.approx(walked.now, rel=1e-6)
    assert counted.busy == pytest.approx(walked.busy, rel=1e-6)
    after = [max(at, clock.asked) for clock in (counted, walked) for at in clock.free]
    assert after[: len(after) // 2] == pytest.approx(after[len(after) // 2 :], rel=1e-6)


def test_few_steps_are_walked_of_many() -> None:
    clock, calls = Clock(), []

    def one() -> None:
        calls.append(1)
        step(clock, 1.0, 0.2, 0.1)

    clock.repeat(1000, one)
    assert len(calls) < 10 and clock.now == pytest.approx(1000 * 4.0, rel=0.2)
