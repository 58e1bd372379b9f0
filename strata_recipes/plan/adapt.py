"""Whether experts change places while a reply is written, and how often. Knows no speed: what it pays is not predicted."""

from __future__ import annotations

from strata_recipes.config.schema import Adapt
from strata_recipes.plan.budget import EXCHANGE
from strata_recipes.plan.experts import Placement
from strata_recipes.plan.plan import AdaptPlan, Budget, Decision
from strata_recipes.units import gib

NOTE = "predicted hits are those of the places at the start: what experts.adapt changes of them is not predicted"


def why_not(place: Placement) -> str | None:
    """Why no expert could change its place, where that is so."""
    if not place.vram_slots:
        return "no expert has a VRAM slot to give up"
    return None if place.ram_blobs + place.file_blobs else "every expert has a VRAM slot"


def exchanges(place: Placement) -> bool:
    """Whether a blob that leaves VRAM may go to RAM."""
    return place.vram_slots > 0 and place.ram_blobs > 0


def plan_adapt(asked: Adapt, place: Placement, ram: Budget) -> tuple[AdaptPlan | None, Decision | None]:
    """None where it is off; no decision where nobody asked."""
    if not asked.every:
        return None, None
    if reason := why_not(place):
        return None, Decision("experts.adapt.every", 0, f"{asked.every} was asked for, and nothing can move: {reason}")
    through = f"through a buffer of {gib(held)}" if (held := ram.part(EXCHANGE)) else "for what they leave to the file"
    because = (
        f"stated: every {asked.every} tokens of a reply up to {asked.swaps} of the {place.ram_blobs + place.file_blobs:,} experts outside "
        f"take the coldest of {place.vram_slots:,} slots, {through}; earlier choices count {asked.decay:g} times as much each time"
    )
    return AdaptPlan(asked.every, asked.swaps, float(asked.decay)), Decision("experts.adapt.every", asked.every, because)
