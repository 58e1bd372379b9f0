"""Puts every expert in the tier that the plan gave it, and tells what that took. Decides nothing: it obeys the plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from strata_recipes.engine.process import process_use, since
from strata_recipes.engine.prompt_tier import prompt_tier, stage, staged_tier
from strata_recipes.engine.readers import Readers
from strata_recipes.engine.watching import Hooks, Progress
from strata_recipes.errors import PackError, PlanError
from strata_recipes.files.mapped import MappedFile
from strata_recipes.files.residency import cached_bytes
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.plan import Plan
from strata_recipes.schedule.startup import Copy, extents, startup_schedule
from strata_recipes.tiers.blobs import BlobTier
from strata_recipes.tiers.file_tier import FileTier, MappedTier
from strata_recipes.tiers.ledger import Ledger
from strata_recipes.tiers.lookup import Check, ExpertTiers
from strata_recipes.tiers.ram import ram_blobs
from strata_recipes.tiers.verify import blob_check
from strata_recipes.tiers.vram import vram_slots

MERGE_BYTES = 32 << 20  # one extent: read ahead, copied and dropped as a whole
AHEAD = 2  # extents asked for before the one that is copied

Order = Sequence[tuple[int, int]]  # (layer, expert) pairs, hottest first
Copied = Callable[[int], None]  # told the bytes of each blob


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
    recheck: Recheck | None  # None where no expert is left to the file
    reading: str  # how the file tier is read, in one line for the log


def start(plan: Plan, pack: Pack, order: Order, ledger: Ledger, hooks: Hooks, *, poison: bool = False) -> StartedTiers:
    """Fills the slots, copies the RAM blobs, opens the file tier. Nothing is left behind when it fails or is interrupted."""
    _check_plan(plan, pack, order)
    schedule = startup_schedule(pack.index, order, plan.vram_slots, plan.ram_blobs, plan.experts.ram_start)
    check = blob_check(pack.experts_path, pack.index, pack.checksums) if plan.experts.verify else None
    with ExitStack() as opened:
        readers = Readers(plan, pack, hooks.note)
        source = readers.mapped()
        opened.callback(source.close)
        vram = vram_slots(schedule.fill, ledger, poison=poison)
        opened.callback(vram.close)
        ram = ram_blobs(schedule.copy, ledger, poison=poison)
        opened.callback(ram.close)
        steps = (_Step("fill", schedule.fill, vram, plan.startup.fill_bytes), _Step("copy", schedule.copy, ram, plan.startup.copy_bytes))
        rss_bytes = process_use().rss_bytes
        figures = _copied(plan, source, steps, check, hooks)
        file = _file_tier(plan, pack, source, readers, poison)
        opened.callback(file.close if file else source.close)
        tiers = ExpertTiers(pack.index, vram, ram, file, check, prompt_tier(plan, pack, source, file, readers, poison), readers.up)
        opened.callback(tiers.close)
        started = StartedTiers(tiers, figures, rss_bytes, _recheck(plan, hooks), _reading(plan, pack))
        opened.pop_all()
    return started


@dataclass(frozen=True)
class _Step:
    name: str
    copies: tuple[Copy, ...]
    tier: BlobTier
    planned_bytes: int


def _copied(plan: Plan, source: MappedFile, steps: tuple[_Step, _Step], check: Check | None, hooks: Hooks) -> StartupFigures:
    ranges = [(extent.offset, extent.num_bytes) for step in steps for extent in extents(step.copies, MERGE_BYTES)]
    cached, before = cached_bytes(source.path, sorted(set(ranges))), process_use()
    seconds = []
    for step in steps:
        began = time.perf_counter()
        _mapped_copies(source, step, check, _meter(step, began, hooks))
        seconds.append(time.perf_counter() - began)
    return StartupFigures(
        strategy=plan.startup.strategy,
        fill_s=seconds[0],
        copy_s=seconds[1],
        purge_s=0.0,
        fill_bytes=steps[0].tier.num_bytes,
        copy_bytes=steps[1].tier.num_bytes,
        drive_bytes=since(process_use().drive_bytes, before.drive_bytes),
        cached_bytes=cached,
        extents=len(ranges),
        fallback=None,
    )


def _mapped_copies(source: MappedFile, step: _Step, check: Check | None, copied: Copied) -> None:
    """In file order, the kernel reading ahead; pages that were copied leave this process and the page cache."""
    todo = extents(step.copies, MERGE_BYTES)
    for extent in todo[:AHEAD]:
        source.will_need(extent.offset, extent.num_bytes)
    for number, extent in enumerate(todo):
        for later in todo[number + AHEAD : number + AHEAD + 1]:
            source.will_need(later.offset, later.num_bytes)
        for copy in extent.copies:
            place = step.tier.place(copy.layer, copy.expert)
            source.read(copy.offset, copy.num_bytes, place)
            if check:
                check(copy.layer, copy.expert, place)
            copied(copy.num_bytes)
        source.drop(extent.offset, extent.num_bytes)


def _meter(step: _Step, began: float, hooks: Hooks) -> Copied:
    done = 0

    def copied(num_bytes: int) -> None:
        nonlocal done
        done += num_bytes
        hooks.progress(Progress(step.name, done, step.tier.num_bytes, done / max(time.perf_counter() - began, 1e-9)))

    return copied


def _file_tier(plan: Plan, pack: Pack, source: MappedFile, readers: Readers, poison: bool) -> FileTier | None:
    """What the file keeps is read as planned; the start's mapping is closed where that is not through it."""
    if plan.file_blobs and plan.experts.file_io == "buffered":
        return MappedTier(source, pack.index)
    source.close()
    if not plan.file_blobs:
        return None
    return staged_tier(plan, pack, readers.direct(), poison)


def _reading(plan: Plan, pack: Pack) -> str:
    if not plan.file_blobs:
        return "no expert is left to the file"
    num_buffers, num_threads, stride = stage(plan, pack)
    how = "through their mapping"
    if plan.experts.file_io == "direct":
        how = f"direct, by {num_threads} threads into {num_buffers} buffers of {stride} bytes"
    elif plan.prefill.direct or plan.prefill.prefetch:
        past = "past the page cache what it does not hold, " if plan.prefill.direct else ""
        how += f"; for a prompt {past}by {num_threads} threads into {num_buffers} buffers of {stride} bytes"
    return f"{plan.file_blobs} experts of {pack.experts_path.name} are read {how}"


def _recheck(plan: Plan, hooks: Hooks) -> Recheck | None:
    if not plan.file_blobs:
        return None
    return Recheck(plan.experts.file_io, hooks.available_bytes(), plan.experts.file_io_threshold_bytes)


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
    if plan.startup.strategy != "mapped":
        raise PlanError(f"startup.strategy={plan.startup.strategy} can be planned but not run in this version: use startup=mapped")
