"""Where tokens to be verified come from. A drafter guesses from ids alone; that its guesses cost nothing but time is decode's part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


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
