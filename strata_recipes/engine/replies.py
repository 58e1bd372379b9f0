"""What a session's replies are computed by: captured graphs on a card, else visit by visit. Knows no prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from strata_recipes.engine.adapt import Adapting
from strata_recipes.engine.stepper import Stepper, WalkStepper, snapshots_for
from strata_recipes.engine.warm_up import WarmUp
from strata_recipes.model.experts import Experts
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.plan import Plan
from strata_recipes.tiers.lookup import ExpertTiers

if TYPE_CHECKING:  # numba-cuda takes a second to import, for those who have a card
    from strata_recipes.engine.card import Card
    from strata_recipes.engine.card_replies import CardReplies
    from strata_recipes.model.cuda_experts import CudaExperts


class Replies:
    """Of one session. `warm`: a card's kernels, which the first reply waits for. Closed once the card is idle."""

    def __init__(
        self, plan: Plan, index: PackIndex, model: Qwen4Exp, experts: Experts, tiers: ExpertTiers, card: Card | None, warm: WarmUp | None,
        adapt: Adapting | None,
    ) -> None:  # fmt: skip
        self._plan, self._index, self._model, self._experts, self._tiers = plan, index, model, experts, tiers
        self._card, self._warm, self._adapt = card, warm, adapt
        self._on_card: CardReplies | None = None

    def stepper(self, state: SequenceState) -> Stepper:
        """For a sequence whose prompt was read, once a card's kernels are compiled: until then they hold dense weights where they are now,
        and a reply may want these elsewhere."""
        if self._warm is not None:
            self._warm.wait_all()
        self._model.reply_starts()
        found = None if self._card is None else self._graphs(self._card)
        refused = None if found is None else found.refused
        if found is not None and refused is None:
            return found.stepper(state)
        snapshots, blobs = snapshots_for(self._plan, state), self._adapt or self._tiers
        return WalkStepper(self._model, self._experts, self._tiers, state, snapshots, blobs, refused)

    def let_go(self) -> None:
        """Graphs hold dense weights where they are now, and these move."""
        if self._on_card is not None:
            self._on_card.let_go()

    def close(self) -> None:
        if self._on_card is not None:
            self._on_card.close()
            self._on_card = None

    def _graphs(self, card: Card) -> CardReplies:
        if self._on_card is None:
            from strata_recipes.engine.card_replies import CardReplies

            idle = cast("CudaExperts", self._experts).idle_memory
            self._on_card = CardReplies(self._plan, self._index, self._model, self._tiers, card.locks, idle, self._adapt)
            if self._on_card.refused is not None:
                card.note(
                    f"replies are computed visit by visit, slower and summed in another order than a card's graphs do, so that tokens "
                    f"may be others: {self._on_card.refused}, raise the limit of locked memory (ulimit -l)"
                )
        return self._on_card
