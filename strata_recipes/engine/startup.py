"""Puts every expert in the tier that the plan gave it, and tells what that took. Decides nothing: it obeys the plan."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strata_recipes.engine.process import process_use, since
from strata_recipes.engine.prompt_tier import prompt_tier, stage, staged_tier
from strata_recipes.engine.readers import READS_AT_ONCE, Readers
from strata_recipes.engine.startup_mapped import copy_mapped
from strata_recipes.engine.startup_steps import RamStep, Step, Steps, Timings
from strata_recipes.engine.startup_unbuffered import DirectHandles, Refused, copy_unbuffered, open_handles, stage_bytes
from strata_recipes.engine.watching import Hooks
from strata_recipes.errors import DeviceError, PackError
from strata_recipes.files.mapped import MappedFile
from strata_recipes.files.residency import cached_bytes
from strata_recipes.files.source import check_same
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.budget import START
from strata_recipes.plan.plan import Plan
from strata_recipes.schedule.startup import Extent, extents, startup_schedule
from strata_recipes.tiers.blobs import BlobTier
from strata_recipes.tiers.cuda_memory import LockedSlices
from strata_recipes.tiers.cuda_slots import CudaSlots
from strata_recipes.tiers.file_tier import FileTier, MappedTier
from strata_recipes.tiers.ledger import Ledger
from strata_recipes.tiers.lookup import ExpertTiers
from strata_recipes.tiers.ram import ram_blobs
from strata_recipes.tiers.verify import blob_check
from strata_recipes.tiers.vram import vram_slots

if TYPE_CHECKING:  # numba-cuda takes a second to import, for those who have a card
    from strata_recipes.engine.card import Card

Order = Sequence[tuple[int, int]]  # (layer, expert) pairs, hottest first


@dataclass(frozen=True)
class StartupFigures:
    """What a start took; the names are those of metrics.json."""

    strategy: str
    fill_s: float
    copy_s: float
    purge_s: float
    fill_bytes: int
    copy_bytes: int
    drive_bytes: int | None
    cached_bytes: int | None  # of the ranges to read, before the start
    extents: int
    fallback: str | None
    pinning_s: float | None = None  # that the start waited for page-locking after its copies; None: no card


@dataclass(frozen=True)
class Recheck:
    """The plan's choice of how decode reads the file tier, against what the start left of RAM."""

    planned: str
    available_bytes: int
    threshold_bytes: int  # buffered is right from here on

    @property
    def holds(self) -> bool:
        return (self.planned == "buffered") == (self.available_bytes >= self.threshold_bytes)


@dataclass(frozen=True)
class StartedTiers:
    tiers: ExpertTiers
    figures: StartupFigures
    rss_before_fill_bytes: int
    in_file: int  # experts that no memory holds
    recheck: Recheck | None  # None where no expert is left to the file
    reading: str  # how the file tier is read, in one line for the log


def start(
    plan: Plan, pack: Pack, order: Order, ledger: Ledger, hooks: Hooks, *, card: Card | None = None, poison: bool = False
) -> StartedTiers:
    """Fills the slots, copies the RAM blobs, opens the file tier. Nothing is left behind when it fails or is interrupted."""
    _check_plan(plan, pack, order)
    schedule = startup_schedule(pack.index, order, plan.vram_slots, plan.ram_blobs, plan.experts.ram_start)
    check = blob_check(pack.experts_path, pack.index, pack.checksums) if plan.experts.verify else None
    with ExitStack() as opened:
        readers = Readers(plan, pack, hooks.note)
        source = readers.mapped()
        opened.callback(source.close)
        vram: BlobTier | CudaSlots
        if card is None:
            vram = vram_slots(schedule.fill, ledger, poison=poison)
        else:
            vram = CudaSlots(schedule.fill, ledger, card.device, card.locks, card.note, card.later_bytes)
        opened.callback(vram.close)
        ram = ram_blobs(schedule.copy, ledger, poison=poison)
        opened.callback(ram.close)
        locked = None if card is None else LockedSlices(ram.slices, card.locks)
        if locked:
            opened.callback(locked.close)
        fill = tuple(copy for copy in schedule.fill if (copy.layer, copy.expert) in vram)
        steps = Steps(Step("fill", fill, vram), RamStep("copy", schedule.copy, ram), check, hooks)
        rss_bytes = process_use().rss_bytes
        source, figures = _copied(plan, source, steps, ledger, opened, readers, poison)
        pinning_s = _locked(locked, hooks)
        in_file = len(order) - len({*vram.pairs(), *ram.pairs()})  # with those that could not be read into RAM
        file = _file_tier(plan, pack, source, readers, card, poison) if in_file else None
        if file:
            opened.callback(file.close)
        prompt = prompt_tier(plan, pack, source, file, readers, card, poison)
        tiers = ExpertTiers(pack.index, vram, ram, file, check, prompt, readers.up, locked)
        opened.callback(tiers.close)
        if not isinstance(file, MappedTier):
            source.close()
        started = StartedTiers(
            tiers,
            dataclasses.replace(figures, pinning_s=pinning_s),
            rss_bytes,
            in_file,
            _recheck(plan, hooks, in_file),
            _reading(plan, pack, in_file),
        )
        opened.pop_all()
    hooks.log(started.reading)
    return started


def _copied(
    plan: Plan, source: MappedFile, steps: Steps, ledger: Ledger, opened: ExitStack, readers: Readers, poison: bool
) -> tuple[MappedFile, StartupFigures]:
    """Carries out the start, and gives back the mapping of the file as it was before: open, with its counters."""
    ranges = sorted({(extent.offset, extent.num_bytes) for extent in _whole(steps)})
    cached, before = cached_bytes(source.path, ranges), process_use()
    if plan.startup.strategy == "unbuffered" and ranges:
        if (needed := stage_bytes(steps.fill, plan.startup)) > plan.startup.stage_bytes:
            raise DeviceError(
                f"an unbuffered start takes {needed} bytes of buffers, the plan counted {plan.startup.stage_bytes}: plan again"
            )
        with ledger.take("ram", START, plan.startup.stage_bytes):
            source, timings = _unbuffered(plan, source, steps, opened, readers, poison)
    else:
        timings = copy_mapped(source, steps, plan.startup.merge_bytes)
    figures = StartupFigures(
        strategy=timings.strategy,
        fill_s=timings.fill_s,
        copy_s=timings.copy_s,
        purge_s=timings.purge_s,
        fill_bytes=steps.fill.tier.num_bytes,
        copy_bytes=sum(copy.num_bytes for copy in steps.copy.copies if (copy.layer, copy.expert) in steps.copy.tier),
        drive_bytes=since(process_use().drive_bytes, before.drive_bytes),
        cached_bytes=cached,
        extents=timings.extents,
        fallback=timings.fallback,
    )
    return source, figures


def _locked(locked: LockedSlices | None, hooks: Hooks) -> float | None:
    """Seconds that page-locking still took after the copies, beside which it ran."""
    if locked is None:
        return None
    began = time.perf_counter()
    locked.wait()
    waited = time.perf_counter() - began
    hooks.log(
        f"{locked.num_bytes} bytes of RAM blobs are page-locked, in {locked.seconds:.3f} s beside the copies and {waited:.3f} s after them"
    )
    return waited


def _whole(steps: Steps) -> list[Extent]:
    """All that is read, each byte once."""
    copies = {copy.offset: copy for step in steps.both for copy in step.copies}
    return extents(list(copies.values()), 1 << 62)


def _unbuffered(
    plan: Plan, source: MappedFile, steps: Steps, opened: ExitStack, readers: Readers, poison: bool
) -> tuple[MappedFile, Timings]:
    """Closes the mapping for the time of the reads: NTFS serializes unbuffered ones of a file that is mapped or open buffered."""
    hooks = steps.hooks
    source.close()
    hooks.log(f"the mapping of {source.path.name} is closed, so that unbuffered reads are not serialized")
    try:
        handles = _opened(plan, source, steps, readers)
    except Refused as refused:
        hooks.note(f"the start reads through the mapping, not unbuffered as planned: {refused}")
        source = _mapped_again(source, opened, readers)
        return source, copy_mapped(source, steps, plan.startup.merge_bytes, fallback=str(refused))
    try:
        timings = copy_unbuffered(handles, steps, plan.startup, poison=poison)
        source = _mapped_again(source, opened, readers)
    finally:
        handles.close()
    hooks.log(f"{source.path.name} is mapped again, {source.size} bytes as before; direct handles and stage buffers are closed")
    return source, timings


def _mapped_again(source: MappedFile, opened: ExitStack, readers: Readers) -> MappedFile:
    """The same file, its size and identity checked, with the counters of the mapping before."""
    again = readers.mapped(source.counters)
    opened.callback(again.close)
    check_same(source.path, source.identity, again.identity)
    return again


def _opened(plan: Plan, source: MappedFile, steps: Steps, readers: Readers) -> DirectHandles:
    first = next(iter((*steps.fill.copies, *steps.copy.copies)))
    handles = open_handles(source.path, source.identity, plan.startup.threads, first, steps.hooks, readers.held)
    steps.hooks.log(
        f"{len(handles.files)} direct handles are open after {handles.purge_s:.3f} s; the first blob, {first.num_bytes} bytes at offset "
        f"{first.offset}, is the same both ways"
    )
    return handles


def _file_tier(plan: Plan, pack: Pack, source: MappedFile, readers: Readers, card: Card | None, poison: bool) -> FileTier:
    """What the file keeps is read as planned."""
    if plan.experts.file_io == "buffered":
        return MappedTier(source, pack.index, None if card is None else readers.at_once(source))
    return staged_tier(plan, pack, readers.direct(), card, poison)


def _reading(plan: Plan, pack: Pack, in_file: int) -> str:
    if not in_file:
        return "no expert is left to the file"
    num_buffers, num_threads, stride = stage(plan, pack)
    how = "through their mapping" if plan.compute.runs_on == "cpu" else f"through the page cache, a reply's {READS_AT_ONCE} at once"
    if plan.experts.file_io == "direct":
        how = f"direct, by {num_threads} threads into {num_buffers} buffers of {stride} bytes"
    elif plan.file_blobs and (plan.prefill.direct or plan.prefill.prefetch):
        past = "past the page cache what it does not hold, " if plan.prefill.direct else ""
        how += f"; for a prompt {past}by {num_threads} threads into {num_buffers} buffers of {stride} bytes"
    return f"{in_file} experts of {pack.experts_path.name} are read {how}"


def _recheck(plan: Plan, hooks: Hooks, in_file: int) -> Recheck | None:
    """Asked again now that the RAM copy is there, and put on record."""
    if not in_file:
        return None
    found = Recheck(plan.experts.file_io, hooks.available_bytes(), plan.experts.file_io_threshold_bytes)
    verdict = "holds" if found.holds else "would be the other now; the plan is kept"
    hooks.log(
        f"experts.file_io={found.planned} {verdict}: {found.available_bytes} bytes of RAM are available after the start, "
        f"buffered reads want {found.threshold_bytes}"
    )
    return found


def _check_plan(plan: Plan, pack: Pack, order: Order) -> None:
    """Refuses a plan of another pack, before anything is allocated."""
    if plan.model.pack_id != pack.index.pack_id:
        raise PackError(
            f"the plan is for pack {plan.model.pack_id}, {pack.folder} holds {pack.index.pack_id}: plan again, or name that pack"
        )
    total = plan.vram_slots + plan.ram_blobs + plan.file_blobs
    if total != pack.index.geometry.total_experts or len(order) != total:
        raise PackError(
            f"the plan places {total} experts and the order lists {len(order)}, where {pack.folder} holds "
            f"{pack.index.geometry.total_experts}: plan again"
        )
