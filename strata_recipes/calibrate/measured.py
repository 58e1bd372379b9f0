"""A number measured several times: its median and how far apart the times were. Measures nothing itself."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """What each round gave, in the unit of the number."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """From the least to the largest."""
        return max(self.values) - min(self.values)


def agree(one: Measured, other: Measured) -> bool:
    """Whether two medians are no further apart than both spreads together."""
    return abs(one.median - other.median) <= one.spread + other.spread


def wins(one: Measured, other: Measured) -> bool:
    """Whether `one` is larger by more than both spreads together."""
    return one.median > other.median and not agree(one, other)


def interleaved(probes: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Measured]:
    """Every probe once a round, so that a PC that grows slower or faster does so for all of them."""
    found: dict[str, list[float]] = {name: [] for name in probes}
    for _ in range(rounds):
        for name, probe in probes.items():
            found[name].append(probe())
    return {name: Measured(tuple(values)) for name, values in found.items()}
