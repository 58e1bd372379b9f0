"""How a prompt reads the file where that is not decode's way: through a stager, ahead of use or past the page cache. Obeys the plan."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from strata_recipes.engine.readers import Readers
from strata_recipes.errors import DeviceError
from strata_recipes.files.aligned import AlignedBuffer
from strata_recipes.files.mapped import MappedFile
from strata_recipes.files.source import ExpertFile
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.budget import STAGE, max_stride
from strata_recipes.plan.plan import Plan
from strata_recipes.tiers.cuda_memory import LockedBuffer
from strata_recipes.tiers.file_tier import FileTier, StagedTier
from strata_recipes.tiers.stager import Stager

if TYPE_CHECKING:  # numba-cuda takes a second to import, for those who have a card
    from strata_recipes.engine.card import Card

READ_THREADS = 8  # reads of about a MiB in flight: a peer's drive needed 2 to 9 to be at its limit


def prompt_tier(
    plan: Plan, pack: Pack, source: MappedFile, decode: FileTier | None, readers: Readers, card: Card | None, poison: bool
) -> StagedTier | None:
    """None where a prompt reads as decode does: views of the mapping, or nothing at all."""
    asked = plan.prefill
    if isinstance(decode, StagedTier):
        return decode
    if not plan.file_blobs or not (asked.prefetch or asked.direct):
        return None
    cached_min = asked.direct_min
    file = readers.through_cache(source) if cached_min is None else readers.by_residency(source, cached_min)
    return staged_tier(plan, pack, file, card, poison)


def staged_tier(plan: Plan, pack: Pack, file: ExpertFile, card: Card | None, poison: bool) -> StagedTier:
    """A stager over the file, with the buffers that the plan counted; the file is closed where that fails."""
    try:
        num_buffers, num_threads, stride = stage(plan, pack)
        make = AlignedBuffer if card is None else partial(LockedBuffer, locks=card.locks)
        return StagedTier(file, Stager(file, num_buffers, stride, num_threads, poison=poison, make_buffer=make), pack.index)
    except BaseException:
        file.close()
        raise


def stage(plan: Plan, pack: Pack) -> tuple[int, int, int]:
    """Buffers, threads and bytes of a buffer."""
    stride = max_stride(pack.index)
    num_buffers = plan.ram.part(STAGE) // stride  # the ledger has given them with the plan's other parts
    if not num_buffers:
        raise DeviceError(f"the plan's {STAGE} of {plan.ram.part(STAGE)} bytes hold no blob of {stride}: plan again")
    return num_buffers, min(num_buffers, READ_THREADS), stride
