"""What a bench did not measure, in sentences: the end of its report. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strata_recipes.bench.runs import Run

_CACHE = {
    "asis": "The page cache was left as the run before left it: neither a cold nor a warm start is measured.",
    "cold": "Starts with the pack in the page cache: it was dropped before each run.",
    "warm": "Starts from a cold drive: the pack was read into the page cache before each run.",
}


def unmeasured(runs: Sequence[Run], metrics: Sequence[str], cache: str) -> list[str]:
    """Runs that are not counted, figures that were not taken, and what one PC in one hour cannot tell."""
    return [
        *(f"{_name(run)} is in no mean: {run.mark.value}, {run.why}" for run in runs if not run.counted),
        *_missing(runs, metrics),
        _CACHE[cache],
        *_emulated(runs),
        "Any other PC, drive, model or prompt than these.",
    ]


def _name(run: Run) -> str:
    return f"Pair {run.pair}, {run.arm}" if run.pair else f"The warm-up, {run.arm},"


def _missing(runs: Sequence[Run], metrics: Sequence[str]) -> Iterator[str]:
    for arm in dict.fromkeys(run.arm for run in runs):
        counted = [run for run in runs if run.arm == arm and run.counted and run.pair]
        missing = [key for key in metrics if all(run.figures.get(key) is None for run in counted)]
        if not counted:
            yield f"{arm}: every figure, as none of its runs is counted."
        elif missing:
            yield f"{arm}: {', '.join(missing)} (not taken on this system, or does not apply)."


def _emulated(runs: Sequence[Run]) -> Iterator[str]:
    """Once for all runs: what was not this machine's own."""
    yield from dict.fromkeys(line for run in runs for line in run.emulated)
