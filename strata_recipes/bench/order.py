"""In which order the arms run: interleaved, every second pair the other way round, so that a drift hits all arms alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def run_order(arms: Sequence[str], pairs: int) -> Iterator[tuple[int, str]]:
    """(pair from 1, arm): a b, b a, a b, ..."""
    for pair in range(1, pairs + 1):
        for arm in arms if pair % 2 else reversed(arms):
            yield pair, arm
