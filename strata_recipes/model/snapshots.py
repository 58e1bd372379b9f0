"""Copies of what a sequence cannot take back otherwise, one for each row of a pass that may be rejected. Knows no drafts.

Keys, values and pooled index keys of tokens that are taken back need none: they lie past the sequence's end, where they are written
again before they are read.
"""

from __future__ import annotations

from torch import Tensor, empty_like

from strata_recipes.model.kv_cache import SequenceState


class Snapshots:
    """Room for `rows` states, taken whole; plan/budget.py gives the same bytes."""

    def __init__(self, state: SequenceState, rows: int) -> None:
        self._state = state
        self._kept: list[list[list[Tensor]]] = [[[empty_like(part) for part in parts] for parts in _layers(state)] for _ in range(rows)]

    @property
    def num_bytes(self) -> int:
        """Allocated bytes."""
        return sum(part.nbytes for row in self._kept for parts in row for part in parts)

    def take(self, layer: int, row: int) -> None:
        """`layer` as it is now, after row `row` of the pass."""
        for mine, theirs in zip(self._kept[row][layer], self._state.rewritten(layer), strict=True):
            mine.copy_(theirs)

    def restore(self, row: int, num_tokens: int) -> None:
        """Every layer as it was after row `row`, with `num_tokens` in the sequence."""
        for layer, parts in enumerate(_layers(self._state)):
            for mine, theirs in zip(self._kept[row][layer], parts, strict=True):
                theirs.copy_(mine)
        self._state.rewind(num_tokens)


def _layers(state: SequenceState) -> list[list[Tensor]]:
    return [state.rewritten(layer) for layer in range(state.num_layers)]
