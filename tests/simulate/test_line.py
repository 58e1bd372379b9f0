"""The closed form of a line of stages against the recurrence that it stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata_recipes.simulate.line import line_ends

SECONDS = st.floats(0, 10)
STAGES = st.lists(SECONDS, min_size=1, max_size=4)


def walked(jobs: int, stages: list[float], free: list[float], buffers: int) -> list[float]:
    """Job by job: a stage does one at a time, and the first waits for a buffer."""
    ends = [list(free)]
    for job in range(jobs):
        row, at = [], ends[job - buffers + 1][-1] if job >= buffers else 0.0
        for stage, seconds in enumerate(stages):
            at = max(at, ends[-1][stage]) + seconds
            row.append(at)
        ends.append(row)
    return ends[-1]


@given(st.integers(1, 40), STAGES, st.data())
def test_without_a_limit_it_is_exact(jobs: int, stages: list[float], data: st.DataObject) -> None:
    free = data.draw(st.lists(SECONDS, min_size=len(stages), max_size=len(stages)))
    assert line_ends(jobs, stages, free, 99) == pytest.approx(walked(jobs, stages, free, 99), rel=1e-9, abs=1e-9)


@given(st.integers(1, 60), STAGES, st.integers(4, 12), st.data())
def test_with_buffers_it_is_within_two_jobs(jobs: int, stages: list[float], buffers: int, data: st.DataObject) -> None:
    free = data.draw(st.lists(st.floats(0, 200), min_size=len(stages), max_size=len(stages)))
    found, truth = line_ends(jobs, stages, free, buffers)[-1], walked(jobs, stages, free, buffers)[-1]
    assert truth - 2 * sum(stages) - 1e-9 <= found <= truth + 2 * sum(stages) + 1e-9


@given(st.floats(0, 60), STAGES, st.floats(1, 12), st.data())
def test_a_slower_stage_or_a_later_start_never_ends_earlier(jobs: float, stages: list[float], buffers: float, data: st.DataObject) -> None:
    free = data.draw(st.lists(SECONDS, min_size=len(stages), max_size=len(stages)))
    which, more = data.draw(st.integers(0, len(stages) - 1)), data.draw(SECONDS)
    before = line_ends(jobs, stages, free, buffers)
    slower = [seconds + (more if i == which else 0) for i, seconds in enumerate(stages)]
    later = [at + (more if i == which else 0) for i, at in enumerate(free)]
    for after in (
        line_ends(jobs, slower, free, buffers),
        line_ends(jobs, stages, later, buffers),
        line_ends(jobs + more, stages, free, buffers),
    ):
        assert all(b >= a - 1e-9 for a, b in zip(before, after, strict=True))
    fewer = line_ends(jobs, stages, free, max(1.0, buffers - 1))
    assert all(b >= a - 1e-9 for a, b in zip(before, fewer, strict=True))


def test_nothing_to_do_takes_no_time_and_part_of_a_job_its_part() -> None:
    assert line_ends(0, [3.0, 4.0], [1.0, 2.0], 2) == [1.0, 2.0]
    assert line_ends(0.5, [3.0, 4.0], [0.0, 0.0], 2) == [1.5, 3.5]
