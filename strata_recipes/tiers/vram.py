"""VRAM slots: one arena, each slot its blob's size. Without a GPU the arena lies in RAM, and nothing above `tiers` differs."""

from __future__ import annotations

from collections.abc import Sequence

from strata_recipes.plan.budget import SLOTS
from strata_recipes.schedule.startup import Copy
from strata_recipes.tiers.blobs import BlobTier
from strata_recipes.tiers.ledger import Ledger

ALIGNMENT = 256


def vram_slots(copies: Sequence[Copy], ledger: Ledger, *, poison: bool = False) -> BlobTier:
    """Slots for the fill, out of the VRAM budget."""
    return BlobTier(copies, ledger, "vram", SLOTS, alignment=ALIGNMENT, slice_bytes=None, poison=poison)
