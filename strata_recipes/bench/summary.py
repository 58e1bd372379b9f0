"""What a bench found, as one value: each arm's counts and figures, the paired differences, identity. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from strata_recipes.bench.identity import identity, with_other_tokens_marked
from strata_recipes.bench.runs import EXIT_OF_MARK, Mark, Run
from strata_recipes.bench.statistics import LEVEL, Difference, Spread, difference, spread
from strata_recipes.bench.unmeasured import unmeasured

VERSION = 1


@dataclass(frozen=True)
class Asked:
    """How the bench was set up: its arms as overrides, the first one the base, and the settings that the report repeats."""

    name: str
    arms: Mapping[str, Sequence[str]]
    metrics: Sequence[str]
    pairs: int
    cache: str
    settle_s: float
    same_tokens: bool
    stop_below: int
    stop_after_s: float

    @property
    def base(self) -> str:
        return next(iter(self.arms))

    @property
    def others(self) -> list[str]:
        return list(self.arms)[1:]


@dataclass(frozen=True)
class Summary:
    asked: Asked
    runs: tuple[Run, ...]  # the warm-up is among them, with pair 0
    figures: Mapping[str, Mapping[str, Spread | None]]  # arm, metric
    differences: Mapping[str, Mapping[str, Difference | None]]  # other arm, metric
    identity: Mapping[str, str]
    lowest_available_bytes: Mapping[str, int | None]  # arm: over all its runs, those that were stopped too

    @property
    def measured(self) -> list[Run]:
        """The runs but for the warm-up."""
        return [run for run in self.runs if run.pair]

    def counts(self, arm: str) -> dict[str, int]:
        """Runs of an arm by mark, every mark named."""
        found = Counter(run.mark for run in self.measured if run.arm == arm)
        return {mark.value: found[mark] for mark in Mark}

    def not_counted(self) -> list[Run]:
        return [run for run in self.runs if not run.counted]

    def exit_code(self) -> int:
        """0 where each arm has a counted run; else of the first run of such an arm."""
        for arm in self.asked.arms:
            runs = [run for run in self.measured if run.arm == arm]
            if not any(run.counted for run in runs):
                return EXIT_OF_MARK[runs[0].mark]
        return 0

    def to_dict(self) -> dict[str, Any]:
        """bench.json: arms and metrics by name."""
        return {
            "version": VERSION,
            "name": self.asked.name,
            "settings": {key: value for key, value in asdict(self.asked).items() if key not in ("name", "arms", "metrics")},
            "arms": {arm: self._arm(arm) for arm in self.asked.arms},
            "differences": {arm: _dicts(found) for arm, found in self.differences.items()},
            "interval_level": LEVEL,
            "identity": dict(self.identity),
            "runs": [asdict(run) | {"mark": run.mark.value} for run in self.runs],
            "not_measured": unmeasured(self.runs, self.asked.metrics, self.asked.cache),
        }

    def _arm(self, arm: str) -> dict[str, Any]:
        return {
            "overrides": list(self.asked.arms[arm]),
            "runs": self.counts(arm),
            "lowest_available_bytes": self.lowest_available_bytes[arm],
            "figures": _dicts(self.figures[arm]),
        }


def summarised(asked: Asked, runs: Sequence[Run]) -> Summary:
    """Marks what computed other tokens, then takes means and paired differences of what is counted."""
    judged = with_other_tokens_marked(runs, asked.base) if asked.same_tokens else list(runs)
    counted = [run for run in judged if run.counted and run.pair]
    figures = {arm: {key: spread(_values(counted, arm, key)) for key in asked.metrics} for arm in asked.arms}
    differences = {arm: {key: _paired(counted, asked.base, arm, key) for key in asked.metrics} for arm in asked.others}
    ended = [run for run in judged if run.pair and run.identity]
    lowest = {arm: _lowest(judged, arm) for arm in asked.arms}
    return Summary(asked, tuple(judged), figures, differences, identity(ended), lowest)


def _values(counted: Sequence[Run], arm: str, key: str) -> list[float]:
    return [value for run in counted if run.arm == arm and (value := run.figures.get(key)) is not None]


def _paired(counted: Sequence[Run], base: str, other: str, key: str) -> Difference | None:
    found = {(run.arm, run.pair): value for run in counted if (value := run.figures.get(key)) is not None}
    pairs = sorted(pair for arm, pair in found if arm == base and (other, pair) in found)
    return difference([found[base, pair] for pair in pairs], [found[other, pair] for pair in pairs])


def _lowest(runs: Sequence[Run], arm: str) -> int | None:
    return min((low for run in runs if run.arm == arm and (low := run.lowest_available_bytes) is not None), default=None)


def _dicts(found: Mapping[str, Spread | Difference | None]) -> dict[str, Any]:
    return {key: None if value is None else asdict(value) for key, value in found.items()}
