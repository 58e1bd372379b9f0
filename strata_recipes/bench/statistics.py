"""Mean and spread of an arm, paired differences with a bootstrap interval. Numbers in, numbers out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
RESAMPLES = 10_000
_SEED = 0  # the same runs give the same interval


@dataclass(frozen=True)
class Spread:
    """Of one figure over an arm's runs; `std` is the sample's (n - 1), None for a single run."""

    n: int
    mean: float
    std: float | None
    lowest: float
    highest: float


@dataclass(frozen=True)
class Difference:
    """Other arm less first arm, pair by pair. `low`, `high`: bootstrap interval of the mean, None below two pairs.

    `ratio`: the other arm's mean over the first arm's, of the same pairs; None where that is 0.
    """

    n: int
    mean: float
    std: float | None
    low: float | None
    high: float | None
    ratio: float | None

    @property
    def certain(self) -> bool:
        """Whether the interval is on one side of 0."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def spread(values: Sequence[float]) -> Spread | None:
    """None of nothing."""
    if not values:
        return None
    return Spread(len(values), math.fsum(values) / len(values), _std(values), min(values), max(values))


def difference(base: Sequence[float], other: Sequence[float]) -> Difference | None:
    """Of values in pairs; None of no pair."""
    pairs = [b - a for a, b in zip(base, other, strict=True)]
    if not pairs:
        return None
    low, high = interval(pairs)
    whole = math.fsum(base)
    return Difference(len(pairs), math.fsum(pairs) / len(pairs), _std(pairs), low, high, math.fsum(other) / whole if whole else None)


def interval(values: Sequence[float], level: float = LEVEL) -> tuple[float | None, float | None]:
    """Percentile bootstrap of the mean: the middle `level` of the means of RESAMPLES draws with replacement."""
    if len(values) < 2:
        return None, None
    draws = np.random.default_rng(_SEED).integers(0, len(values), (RESAMPLES, len(values)))
    means = np.asarray(values, np.float64)[draws].mean(axis=1)
    low, high = np.quantile(means, ((1 - level) / 2, (1 + level) / 2))
    return float(low), float(high)


def _std(values: Sequence[float]) -> float | None:
    return float(np.std(np.asarray(values, np.float64), ddof=1)) if len(values) > 1 else None
