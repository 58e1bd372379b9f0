"""What replies on a card keep from one to the next: the experts' addresses, room for those that are missed, and the captured graphs."""

from __future__ import annotations

from torch import Tensor

from kernels_numba.gpu import token_ops
from strata_recipes.engine.adapt import Adapting
from strata_recipes.engine.token_stepper import TokenStepper
from strata_recipes.model.gathered import gather_room
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.budget import max_stride
from strata_recipes.plan.plan import Plan
from strata_recipes.tiers.addresses import AddressTable
from strata_recipes.tiers.cuda_memory import LockedBuffer, Locks
from strata_recipes.tiers.lookup import ExpertTiers


class CardReplies:
    """Of one session. `refused`: why a card's kernels could not read missed experts, so that there are no graphs; None: they can.
    Closed before the tiers, after the card is idle."""

    def __init__(
        self, plan: Plan, index: PackIndex, model: Qwen4Exp, tiers: ExpertTiers, locks: Locks, idle: Tensor, adapt: Adapting | None
    ) -> None:
        """`idle`: memory of the card that nothing uses during a reply."""
        self._adapt = adapt
        self._model, self._index, self._tiers = model, index, tiers
        self._table = AddressTable(tiers, model.device)
        self._rows = plan.decode.draft_tokens + 1
        self._gather = None if self._table.in_vram.all() else gather_room(index, self._rows, idle)
        self._stage: LockedBuffer | None = None  # the last thing taken: where another is refused no lock is left behind
        if not (self._table.whole if adapt is None else self._table.whole_wherever):  # once made, graphs of whole tokens stay
            self._stage = LockedBuffer(self._rows * index.geometry.top_k * max_stride(index), 4096, locks)
        self.refused = None if self._stage is None else _out_of_reach(self._stage)
        self._made: tuple[SequenceState, TokenStepper] | None = None

    def stepper(self, state: SequenceState) -> TokenStepper:
        """For this sequence, with the graphs of the one before in the same memory; where nothing was `refused`."""
        if self._made is None or self._made[0] is not state:
            self._made = (
                state,
                TokenStepper(
                    token_ops, self._model, self._index, self._tiers, self._table, state, self._rows, self._stage, self._gather, self._adapt
                ),
            )
        return self._made[1]

    def let_go(self) -> None:
        """The graphs, and what they compute in."""
        self._made = None

    def close(self) -> None:
        self.let_go()
        if self._stage is not None:
            self._stage.close()


def _out_of_reach(stage: LockedBuffer) -> str | None:
    if stage.card_address:
        return None
    return f"the card reaches none of the {stage.bytes.size:,} bytes of RAM for experts that no memory holds, which were to be page-locked"
