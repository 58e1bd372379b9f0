"""What it takes to bring a sequence back to one of a pass's rows. Knows no drafts.

A delta net's state is kept once, before the pass, and what the rows wrote to it is written again: it is nine tenths of what tokens
overwrite, and a row's key and value are a hundredth of it. The rest is copied after each row. Keys, values and pooled index keys of
rows that are taken back need nothing: they lie past the sequence's end, where they are written again before they are read.
"""

from __future__ import annotations

from torch import Tensor, empty_like, no_grad

from strata_recipes.model.gdn import write
from strata_recipes.model.kv_cache import SequenceState


class Snapshots:
    """Of passes of one token more than `rows`; plan/budget.py gives the same bytes."""

    def __init__(self, state: SequenceState, rows: int) -> None:
        self._state = state
        self._before = {layer: empty_like(at.delta) for layer, at in state.delta.items()}
        self._after = [[[empty_like(part) for part in parts] for parts in _small(state)] for _ in range(rows)]

    @property
    def num_bytes(self) -> int:
        """Allocated bytes."""
        small = sum(part.nbytes for row in self._after for parts in row for part in parts)
        return small + sum(part.nbytes for part in self._before.values())

    def begin(self) -> None:
        """A pass comes next."""
        for layer, kept in self._before.items():
            kept.copy_(self._state.delta[layer].delta)
        self._state.delta_writes = {layer: [] for layer in self._before}

    def take(self, layer: int, row: int) -> None:
        """`layer` has read row `row` of the pass, which is not the last."""
        for mine, theirs in zip(self._after[row][layer], _overwritten(self._state, layer), strict=True):
            mine.copy_(theirs)

    @no_grad()
    def restore(self, row: int, num_tokens: int) -> None:
        """Every layer as it was after row `row`, with `num_tokens` in the sequence."""
        for mine, theirs in zip(self._after[row], _small(self._state), strict=True):
            for kept, part in zip(mine, theirs, strict=True):
                part.copy_(kept)
        for layer, kept in self._before.items():
            delta = self._state.delta[layer].delta
            delta.copy_(kept)
            for written in self._state.delta_writes[layer][: row + 1]:
                write(written, delta)
        self._state.rewind(num_tokens)

    def end(self) -> None:
        """The pass is over, its rows stay or were taken back."""
        self._state.delta_writes = {}


def _small(state: SequenceState) -> list[list[Tensor]]:
    return [_overwritten(state, layer) for layer in range(state.num_layers)]


def _overwritten(state: SequenceState, layer: int) -> list[Tensor]:
    """The tensors of a layer that each token overwrites in place, but a delta net's state."""
    found = [state.attention[layer].pending] if layer in state.attention else [state.delta[layer].conv]
    return found + ([*vars(state.ngram[layer]).values()] if layer in state.ngram else [])
