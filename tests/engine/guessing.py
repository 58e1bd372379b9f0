"""A drafter that knows the reply, and spoils its guesses by a seed: every count of right ones happens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Guesser:
    """`truth`: the reply and what would follow it. `spoilt` False: every guess is right, and as long as it may be."""

    def __init__(self, truth: Sequence[int], most: int, vocab: int, *, spoilt: bool = True) -> None:
        self._truth, self._most, self._vocab, self._spoilt = list(truth), most, vocab, spoilt
        self._at, self._rng = 0, np.random.default_rng(most)

    def add(self, token: int) -> None:
        assert token == self._truth[self._at], "told of another token, or out of order"
        self._at += 1

    def draft(self, count: int) -> list[int]:
        most = min(count, self._most)
        guess = self._truth[self._at : self._at + most]
        if self._spoilt:
            guess = guess[: int(self._rng.integers(0, most + 1))]
            wrong = int(self._rng.integers(0, most - len(guess) + 1))
            guess += [int(token) for token in self._rng.integers(0, self._vocab, wrong)]
        return guess
