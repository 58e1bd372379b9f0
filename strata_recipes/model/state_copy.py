"""A copy of all that tokens overwrite in a sequence's state, to come back to. Knows no drafts.

Keys, values and pooled index keys need none: those of tokens that are taken back lie past the sequence's end, where they are written
again before they are read.
"""

from __future__ import annotations

from torch import Tensor, empty_like

from strata_recipes.model.kv_cache import SequenceState


class StateCopy:
    """Room for one; copies are queued on torch's current stream."""

    def __init__(self, state: SequenceState) -> None:
        self._state = state
        self._theirs: list[Tensor] = [at.pending for at in state.attention.values()]
        self._theirs += [part for at in (*state.delta.values(), *state.ngram.values()) for part in vars(at).values()]
        self._mine = [empty_like(part) for part in self._theirs]

    def take(self) -> None:
        """The state as it is now."""
        for mine, theirs in zip(self._mine, self._theirs, strict=True):
            mine.copy_(theirs)

    def restore(self, num_tokens: int) -> None:
        """The state as it was taken, when it had `num_tokens`."""
        for mine, theirs in zip(self._mine, self._theirs, strict=True):
            theirs.copy_(mine)
        self._state.rewind(num_tokens)
