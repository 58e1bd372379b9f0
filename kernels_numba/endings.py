"""What becomes of the sums of a product with dense weights: stored, or taken on at once to what the next op reads. Knows no device.

R rows, n sums a row. Arrays are torch's, numpy's or a GPU's; all are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Columns:
    """out[:, first : first + n] = the sums; out [R, N], whose other columns stay as they are."""

    out: Any
    first: int = 0

    def after(self, columns: int) -> Columns:
        """For the sums of the next stack, once this many are done."""
        return replace(self, first=self.first + columns)

    def changed(self, change: Callable[[Any], Any]) -> Columns:
        """Its arrays as a function gives them back."""
        return replace(self, out=change(self.out))


@dataclass(frozen=True)
class Gates:
    """The sums over the number of streams, of which there are rank + S' with those from `first` on here: act [R, rank] takes silu of the

    first `rank`, strengths [R, S'] twice the sigmoid of the rest. S' is the number of streams, or 0 where nothing is injected. Each value
    errs by 4e-6 of itself beside what its sum does.
    """

    act: Any
    strengths: Any
    num_streams: int
    first: int = 0

    def after(self, columns: int) -> Gates:
        """As Columns has it."""
        return replace(self, first=self.first + columns)

    def changed(self, change: Callable[[Any], Any]) -> Gates:
        """As Columns has it."""
        return replace(self, act=change(self.act), strengths=change(self.strengths))


@dataclass(frozen=True)
class Mixed:
    """x [R, H] = the mean over S streams, in turn, of sigmoid(the sums) * normed [R, S * H]; the n sums are S * H, in one stack.

    A value errs by 4e-6 of the largest of normed beside what its sums do; S is at most MOST_STREAMS.
    """

    normed: Any
    x: Any

    def after(self, columns: int) -> Mixed:
        """ValueError but for the first: a mean needs all of a row's sums at once."""
        if columns:
            raise ValueError(f"streams are mixed from the sums of one stack of one format, {columns} stand in another")
        return self

    def changed(self, change: Callable[[Any], Any]) -> Mixed:
        """As Columns has it."""
        return replace(self, normed=change(self.normed), x=change(self.x))


MOST_STREAMS = 8  # a block of threads has shared memory for their sums
Ending = Columns | Gates | Mixed
