"""Where tokens to be verified come from. A drafter guesses from ids alone; that a wrong guess costs nothing but time is decode's part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from strata_recipes.plan.plan import DecodePlan

SHORTEST_MATCH = 3  # tokens; shorter ones are found everywhere and say little of what follows
LONGEST_MATCH = 64  # beyond it matches are alike, and the search would take a pass over all ids for each token more


class Drafter(Protocol):
    """Hears of every token of the reply, in order, and guesses the next ones."""

    def add(self, token: int) -> None: ...

    def draft(self, count: int) -> Sequence[int]:
        """Up to `count` tokens, at least 1, that may follow."""


class NoDrafts:
    """Plain decode."""

    def add(self, token: int) -> None:
        """Nothing is guessed from it."""

    def draft(self, count: int) -> Sequence[int]:
        return ()


def drafter_for(plan: DecodePlan, prompt: NDArray[np.integer], room: int) -> Drafter:
    """What the plan says; `room`: tokens that the reply may have."""
    return SuffixDrafter(prompt, room, plan.draft_tokens) if plan.draft_tokens else NoDrafts()


class SuffixDrafter:
    """Guesses that what followed the last tokens where they stood before follows again, in prompt or reply.

    `room`: tokens that the reply may have. `most`: of one guess.
    """

    def __init__(self, prompt: NDArray[np.integer], room: int, most: int) -> None:
        self._ids = np.empty(prompt.size + room, np.int32)
        self._ids[: prompt.size] = prompt
        self._size = prompt.size
        self._most = most
        self._at: int | None = None  # what follows the match; None: to be looked for

    def add(self, token: int) -> None:
        if self._at is not None:  # no other match can have become longer than one that goes on
            self._at = self._at + 1 if self._ids[self._at] == token else None
        self._ids[self._size] = token
        self._size += 1

    def draft(self, count: int) -> list[int]:
        ids = self._ids[: self._size]
        if self._at is None:
            self._at = earlier_match(ids)
        if self._at is None:
            return []
        wanted = min(count, self._most)
        after = ids[self._at : self._at + wanted].tolist()  # fewer where the match ends near the end: what followed it then goes round
        return [after[step % len(after)] for step in range(wanted)]


def earlier_match(ids: NDArray[np.int32]) -> int | None:
    """Where the longest match of the last ids ends earlier on: ids[at - n : at] == ids[-n:] with at < len(ids), the latest of equally long
    ones. None where n would be under SHORTEST_MATCH; above LONGEST_MATCH tokens matches count as equally long."""
    if ids.size <= SHORTEST_MATCH:
        return None
    ends = np.flatnonzero(ids[:-1] == ids[-1])
    ends += 1
    for back in range(2, LONGEST_MATCH + 1):
        if ends.size == 1 and back > SHORTEST_MATCH:
            break
        there = ends[np.searchsorted(ends, back) :]  # those that have so many ids before them
        longer = there[ids[there - back] == ids[-back]]
        if not longer.size:
            return int(ends[-1]) if back > SHORTEST_MATCH else None  # back - 1 ids match
        ends = longer
    return int(ends[-1])
