"""Experts follow a reply: what its tokens choose is counted, and every so many tokens the hottest take the coldest slots. Obeys the plan.

Changes where blobs lie, never what is computed from them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata_recipes.files.source import Bytes
from strata_recipes.plan.budget import EXCHANGE
from strata_recipes.plan.plan import AdaptPlan, Plan
from strata_recipes.tiers.blobs import Pair
from strata_recipes.tiers.exchange import Exchange, Places, hotter, ranks
from strata_recipes.tiers.heat import Heat
from strata_recipes.tiers.lookup import ExpertTiers

FOLD_TOKENS = 64  # where nothing moves and choices are only counted: what is kept of them until then
SPARE_ALIGNMENT = 4096


class Adapting:
    """Stands between a reply's tokens and the tiers. `order`: of the experts as the run began. `plan` None: it only counts."""

    def __init__(self, tiers: ExpertTiers, order: Sequence[Pair], plan: AdaptPlan | None, spare: Bytes | None) -> None:
        g = tiers.index.geometry
        self._tiers = tiers
        self._plan = plan
        self._heat = Heat(g.num_layers, g.num_experts, 1.0 if plan is None else plan.decay)
        self._rank = ranks(order, (g.num_layers, g.num_experts))
        self._places = Places(tiers)
        self._exchange = Exchange(tiers, spare)
        self._tokens = 0
        self._swaps = 0
        self._seconds = 0.0  # that counting up and swapping took

    def blobs(self, layer: int, experts: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """The tiers' blobs, the choice counted."""
        self._heat.add(layer, experts)
        return self._tiers.blobs(layer, experts)

    def count(self, routed: NDArray[np.int32]) -> None:
        """A pass's choices [layers, rows, k], where no blob was asked for."""
        for layer, chosen in enumerate(routed):
            self._heat.add(layer, np.unique(chosen).tolist())

    def token_done(self) -> None:
        """Between two tokens: no kernel of the next one is launched, and nothing holds a blob."""
        self._tokens += 1
        if self._tokens % (FOLD_TOKENS if self._plan is None else self._plan.every) == 0:
            began = time.perf_counter()
            self._heat.fold()
            if self._plan is not None:
                self._swap(self._plan.swaps)
            self._seconds += time.perf_counter() - began

    def counted(self) -> NDArray[np.int64]:
        """How often each expert was chosen so far, [layers, experts]."""
        return self._heat.counted()

    def take_figures(self) -> tuple[int, float] | None:
        """Swaps and their seconds since the last call; None where nothing moves."""
        found = self._swaps, self._seconds
        self._swaps, self._seconds = 0, 0.0
        return None if self._plan is None else found

    def _swap(self, most: int) -> None:
        for swap in hotter(self._heat.recent, self._rank, self._places, most):
            self._exchange.swap(swap)
            self._places.change(swap)
            self._swaps += 1


def adapting(plan: Plan, tiers: ExpertTiers, order: Sequence[Pair], opened: ExitStack) -> Adapting | None:
    """As planned, with the buffer that the plan counts, given back with `opened`; None where nothing is counted."""
    asked, num_bytes, spare = plan.experts.adapt, plan.ram.part(EXCHANGE), None  # the ledger has given them with the plan's other parts
    if asked is None and not plan.experts.counted:
        return None
    if num_bytes:
        buffer = tiers.vram.buffer(num_bytes, SPARE_ALIGNMENT)
        opened.callback(buffer.close)
        opened.callback(tiers.vram.flush)  # no copy is under way to the buffer that is given back next
        spare = buffer.bytes
    return Adapting(tiers, order, asked, spare)
