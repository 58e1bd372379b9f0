"""Alike jobs through a line of stages: when each stage is done with the last, as a closed form. Knows no experts.

Every stage does one job at a time, in order. `buffers`: a job is taken up by the first stage only when the one that many
jobs before it has left the last stage. All of it is sums and maxima of times, so nothing ends earlier when a stage is slower.
"""

from __future__ import annotations

from collections.abc import Sequence


def line_ends(jobs: float, stages: Sequence[float], free: Sequence[float], buffers: float) -> list[float]:
    """When each stage ends its last job. `stages`: seconds a job; `free`: when each can begin. An expected count may be no whole number.

    Exact without the limit of buffers; with it within two jobs' time of the recurrence that it stands for (at least one buffer a stage).
    """
    if jobs <= 0:
        return list(free)
    if jobs < 1:
        stages, jobs = [seconds * jobs for seconds in stages], 1.0
    count = len(stages)
    ends = []
    for last in range(count):
        passed, slowest, end = 0.0, 0.0, 0.0
        for first in range(last, -1, -1):
            passed += stages[first]
            slowest = max(slowest, stages[first])
            end = max(end, free[first] + passed + (jobs - 1) * slowest)
        ends.append(max(end, free[last] + stages[last]))
    held = max(buffers, float(count))
    if jobs > held:
        _wait_for_buffers(ends, jobs - held - 1, stages, free)
    return ends


def _wait_for_buffers(ends: list[float], more: float, stages: Sequence[float], free: Sequence[float]) -> None:
    """The way back: a job that leaves the line frees the buffer of one at its start; the others follow as the slowest stage lets them."""
    slowest, rest, back = max(stages), 0.0, 0.0
    for first in range(len(stages) - 1, -1, -1):
        rest += stages[first]
        back = max(back, free[first] + rest)
    into = 0.0
    for stage, seconds in enumerate(stages):
        into += seconds
        ends[stage] = max(ends[stage], back + into + max(0.0, more) * slowest)
