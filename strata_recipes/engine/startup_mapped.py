"""The start through a mapping: layer by layer, the kernel reading ahead; pages that were copied are let go. A fair other arm."""

from __future__ import annotations

import contextlib
import sys

from strata_recipes.engine.startup_steps import Copied, Step, Steps, Timings, metered, num_extents
from strata_recipes.files.mapped import MappedFile
from strata_recipes.machine import windows_memory
from strata_recipes.schedule.startup import Batch, layers

AHEAD = 2  # extents asked for before the one that is copied


def copy_mapped(source: MappedFile, steps: Steps, merge_bytes: int, fallback: str | None = None) -> Timings:
    """Fill, then copy. `fallback`: why the start is mapped where the plan says unbuffered."""
    seconds = []
    todo = [layers(step.copies, merge_bytes) for step in steps.both]
    for step, batches in zip(steps.both, todo, strict=True):
        with metered(step, steps.hooks) as (copied, watch):
            _copy_layers(source, step, batches, steps, copied)
        seconds.append(watch.seconds)
        if step is steps.fill:
            _trim(steps)
    _let_go(source, steps)
    return Timings("mapped", seconds[0], seconds[1], num_extents(todo), fallback=fallback)


def _copy_layers(source: MappedFile, step: Step, batches: list[Batch], steps: Steps, copied: Copied) -> None:
    ahead = [extent for batch in batches for extent in batch.extents]
    for extent in ahead[:AHEAD]:
        source.will_need(extent.offset, extent.num_bytes)
    number = 0
    for batch in batches:
        for extent in batch.extents:
            for later in ahead[number + AHEAD : number + AHEAD + 1]:
                source.will_need(later.offset, later.num_bytes)
            number += 1
            for copy in extent.copies:
                with step.tier.receive(copy.layer, copy.expert) as place:
                    source.read(copy.offset, copy.num_bytes, place)
                    if steps.check:
                        steps.check(copy.layer, copy.expert, place)
                copied(copy.num_bytes)
        for extent in batch.extents:
            source.drop(extent.offset, extent.num_bytes)
    step.tier.flush()


def _trim(steps: Steps) -> None:
    """Windows keeps every page that the fill touched in the working set until it is told."""
    if sys.platform == "win32" and steps.fill.copies:
        windows_memory.trim_working_set()
        steps.hooks.log("the working set was trimmed between fill and copy")


def _let_go(source: MappedFile, steps: Steps) -> None:
    """Takes the view's pages out of Windows' working set after the copy; the view is open here, a closed one's range is not ours."""
    if sys.platform == "win32" and steps.copy.copies:
        with contextlib.suppress(OSError):  # 158: it was not locked, and is taken out all the same
            windows_memory.unlock(source.address, source.size)
