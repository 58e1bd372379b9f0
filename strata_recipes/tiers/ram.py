"""Expert blobs in RAM, in mappings of at most 1 GiB. Does not know page-locking, nor why these blobs."""

from __future__ import annotations

from collections.abc import Sequence

from strata_recipes.plan.budget import BLOBS
from strata_recipes.schedule.startup import Copy
from strata_recipes.tiers.arena import SLICE_BYTES
from strata_recipes.tiers.blobs import BlobTier
from strata_recipes.tiers.ledger import Ledger

ALIGNMENT = 4096  # a direct read can then land in its place


def ram_blobs(copies: Sequence[Copy], ledger: Ledger, *, slice_bytes: int = SLICE_BYTES, poison: bool = False) -> BlobTier:
    """Places for the RAM copy, out of the RAM budget."""
    return BlobTier(copies, ledger, "ram", BLOBS, alignment=ALIGNMENT, slice_bytes=slice_bytes, poison=poison)
