"""What decode needs of whatever computes: a sequence that is read on by a few tokens at a time, and taken back. Knows no drafts.

`WalkStepper` is the one that walks the layers' halves visit by visit: on the CPU, and on a card where page-locked RAM is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from strata_recipes.engine.walk import PhaseTimes, Walk
from strata_recipes.errors import DeviceError
from strata_recipes.model.experts import Blobs, Experts
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.model.snapshots import Snapshots
from strata_recipes.plan.budget import DRAFTS
from strata_recipes.plan.decode import MOST_ROWS
from strata_recipes.plan.plan import Plan
from strata_recipes.schedule.prefill import Half, step_visits
from strata_recipes.tiers.lookup import ExpertTiers, TierCounters

Logits = NDArray[np.float32]


class Stepper(Protocol):
    """One sequence, its prompt read."""

    @property
    def fallback(self) -> str | None:
        """Why it is not the one that was planned; None: it is."""

    def step(self, tokens: Sequence[int]) -> Logits:
        """Reads R tokens, 1 to MOST_ROWS, in one pass at the sequence's end; the state moves on by R.

        -> logits [R, vocab]: row r is what follows tokens[r], the same bits as R steps of one token each would give. Valid until
        keep_only or the next step. The caller checked that the context holds them.
        """

    def keep_only(self, num_tokens: int) -> None:
        """Takes back all but the first `num_tokens` of the last step's R, 1 <= num_tokens <= R: the state is as if the others were never
        read. Called at most once after a step, and only after one of R > 1; a step that is not followed by it stays whole."""

    def times(self) -> PhaseTimes:
        """Seconds of all steps by phase; zeros where a step's phases cannot be told apart."""

    def take_counters(self) -> TierCounters:
        """Expert look-ups since the last call, an expert once a step and layer however many rows chose it."""


def snapshots_for(plan: Plan, state: SequenceState) -> Snapshots | None:
    """Where the plan drafts, in the memory that it counted for them; DeviceError where that is too little."""
    if not plan.decode.draft_tokens:
        return None
    snapshots, counted = Snapshots(state, plan.decode.draft_tokens), plan.vram.part(DRAFTS) + plan.ram.part(DRAFTS)
    if snapshots.num_bytes > counted:
        raise DeviceError(f"drafts take {snapshots.num_bytes} bytes of states, the plan counted {counted}: plan again")
    return snapshots


class WalkStepper:
    """Rows go through a layer's mixer one by one, since a matmul's row bits depend on the number of its rows; then through its experts
    together, each fetched once, whose rows' bits do not. `snapshots`: of passes of one row more; None: steps are of one token."""

    def __init__(
        self,
        model: Qwen4Exp,
        experts: Experts,
        tiers: ExpertTiers,
        state: SequenceState,
        snapshots: Snapshots | None = None,
        blobs: Blobs | None = None,
        fallback: str | None = None,
    ) -> None:
        """`blobs`: what stands before the tiers, and counts what it is asked for. `fallback`: why it stands in for a card's graphs."""
        self.fallback = fallback
        self._model = model
        self._experts = experts
        self._tiers = tiers
        self._blobs = blobs or tiers
        self._state = state
        self._snapshots = snapshots
        self._times = PhaseTimes()
        self._first = state.num_tokens  # of the last step

    def step(self, tokens: Sequence[int]) -> Logits:
        assert 1 <= len(tokens) <= MOST_ROWS, f"a step reads 1 to {MOST_ROWS} tokens, not {len(tokens)}"
        first = self._first = self._state.num_tokens
        walk = Walk(self._model, self._experts, self._blobs, self._state, np.array(tokens, np.int64), first, times=self._times)
        if self._snapshots is not None:
            self._snapshots.end()  # of the step before
        if len(tokens) > 1:
            self._kept().begin()
            walk.super_chunk(first, first + len(tokens))
        for visit in step_visits(self._model.geometry.num_layers, first, len(tokens)):
            walk.do(visit)
            if visit.half is Half.mixer and visit.stop < first + len(tokens):
                self._kept().take(visit.layer, visit.start - first)
        rows = np.empty((len(tokens), self._model.geometry.vocab), np.float32)
        for row, at in enumerate(range(first, first + len(tokens))):
            rows[row] = walk.logits((at, at + 1), every=False, last=True)
        return rows

    def keep_only(self, num_tokens: int) -> None:
        if self._first + num_tokens < self._state.num_tokens:
            self._kept().restore(num_tokens - 1, self._first + num_tokens)

    def times(self) -> PhaseTimes:
        return self._times

    def take_counters(self) -> TierCounters:
        return self._tiers.take_counters()

    def _kept(self) -> Snapshots:
        assert self._snapshots is not None, "a step of more than one token needs snapshots"
        return self._snapshots
