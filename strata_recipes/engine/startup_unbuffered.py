"""The start past the page cache: each expert read once, by several threads, into its place or a stage buffer on its way there."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from strata_recipes.engine.reading_threads import ReadingThreads, Task
from strata_recipes.engine.startup_steps import RamStep, Step, Steps, Timings, metered, num_extents
from strata_recipes.engine.watching import Hooks
from strata_recipes.errors import FileError
from strata_recipes.files.aligned import AlignedBuffer
from strata_recipes.files.buffered import BufferedFile
from strata_recipes.files.direct import DirectReader, open_direct
from strata_recipes.files.source import Bytes, ExpertFile, Identity, check_same
from strata_recipes.plan.budget import START_WINDOW_BYTES
from strata_recipes.plan.plan import StartupPlan
from strata_recipes.schedule.startup import Batch, Copy, Extent, batches
from strata_recipes.tiers.arena import POISON
from strata_recipes.tiers.lookup import Check

ALIGNMENT = 4096


@dataclass(frozen=True)
class DirectHandles:
    """One a reading thread, tried: the first blob came the same both ways."""

    files: tuple[ExpertFile, ...]
    purge_s: float

    def close(self) -> None:
        """Where no thread reads any more, nothing is left to close: the threads closed theirs."""
        for file in self.files:
            file.close()


class Refused(Exception):
    """Why the start cannot be unbuffered; the mapping can still do it."""


def open_handles(
    path: Path, identity: Identity, num: int, first: Copy, hooks: Hooks, held: Callable[[ExpertFile], ExpertFile] = lambda file: file
) -> DirectHandles:
    """Opens and tries the direct handles; Refused where this drive or file system does not read so. No buffered handle may be open.

    `held`: puts each on a link that is held to a rate.
    """
    files: list[DirectReader] = []
    tell = _Once(hooks)
    try:
        began = time.perf_counter()
        _open_all(files, path, identity.size, num, tell)
        purge_s = time.perf_counter() - began  # Windows lets the file's cached pages go at the first of these opens
        check_same(path, identity, files[0].identity)
        _try_both_ways(files[0], path, identity.size, first)
        tell.trusted = True
        return DirectHandles(tuple(held(file) for file in files), purge_s)
    except BaseException:
        for file in files:
            file.close()
        raise


def copy_unbuffered(handles: DirectHandles, steps: Steps, plan: StartupPlan, *, poison: bool = False) -> Timings:
    """Fill, then copy. Pairs of the RAM copy that cannot be read leave its tier; the handles are left open."""
    todo = [batches(steps.fill.copies, plan.fill_batch, plan.merge_bytes), batches(steps.copy.copies, plan.copy_batch, plan.merge_bytes)]
    with _threads(handles.files) as threads:
        with metered(steps.fill, steps.hooks) as (copied, filled):
            for copy in _Fill(threads, steps, plan.depth, poison).run(todo[0]):
                copied(copy.num_bytes)
        with metered(steps.copy, steps.hooks) as (copied, came):
            lost = []
            for extent, failures in _copy(threads, steps.copy, todo[1], steps.check):
                lost += failures
                copied(sum(copy.num_bytes for copy in extent.copies))
        _leave_to_file(steps, lost)
    return Timings("unbuffered", filled.seconds, came.seconds, num_extents(todo), handles.purge_s)


def stage_bytes(fill: Step, plan: StartupPlan) -> int:
    """What such a start keeps in memory for a while: stage buffers of the fill, and a window a thread."""
    sizes = [batch.num_bytes for batch in batches(fill.copies, plan.fill_batch, plan.merge_bytes)]
    return max(sizes, default=0) * min(plan.depth, len(sizes)) + plan.threads * START_WINDOW_BYTES


class _Once:
    """Tells the first refusal of all handles, once they are trusted; before that a refusal is a reason to fall back."""

    def __init__(self, hooks: Hooks) -> None:
        self.trusted = False
        self._said = False
        self._hooks = hooks

    def __call__(self, sentence: str) -> None:
        if self.trusted and not self._said:
            self._said = True
            self._hooks.note(sentence)


def _open_all(files: list[DirectReader], path: Path, size: int, num: int, tell: _Once) -> None:
    for _ in range(num):
        try:
            files.append(open_direct(path, size, tell))
        except FileError as error:
            raise Refused(str(error)) from error
        if files[-1].refused:
            raise Refused(files[-1].refused)


def _try_both_ways(file: DirectReader, path: Path, size: int, first: Copy) -> None:
    """Reads one blob past the cache and through it. Its buffered handle is closed again before the start reads."""
    direct, buffered = AlignedBuffer(first.num_bytes, ALIGNMENT), np.zeros(first.num_bytes, np.uint8)
    with_cache = BufferedFile(path, size)
    try:
        with_cache.read(first.offset, first.num_bytes, buffered)
    finally:
        with_cache.close()
    try:
        file.read(first.offset, first.num_bytes, direct.bytes)
        if file.refused:
            raise Refused(file.refused)
        if not np.array_equal(direct.bytes, buffered):
            differ = int(np.flatnonzero(direct.bytes != buffered)[0])
            raise Refused(
                f"the first blob, {first.num_bytes} bytes at offset {first.offset}, differs from byte {differ} on when read directly"
            )
    finally:
        direct.close()


@contextmanager
def _threads(files: Sequence[ExpertFile]) -> Iterator[ReadingThreads]:
    threads = ReadingThreads(files)
    try:
        yield threads
    finally:
        threads.close()


class _BlobFailed(Exception):
    """A blob that could not be read, with the read's error as its cause."""

    def __init__(self, copy: Copy, error: FileError) -> None:
        super().__init__(str(error))
        self.copy = copy


class _Fill:
    """Batches through stage buffers: the next is read while the present one is copied. A buffer is read into again after its copy."""

    def __init__(self, threads: ReadingThreads, steps: Steps, depth: int, poison: bool) -> None:
        self._threads = threads
        self._steps = steps
        self._depth = depth
        self._poison = poison

    def run(self, todo: list[Batch]) -> Iterator[Copy]:
        """Yields each copy once it is in its place."""
        size = max((batch.num_bytes for batch in todo), default=0)
        buffers = [self._steps.fill.tier.buffer(size, ALIGNMENT) for _ in range(min(self._depth, len(todo)))]
        reading: deque[list[tuple[Extent, Bytes, Task]]] = deque()
        try:
            for number, batch in enumerate(todo):
                while len(reading) < len(buffers) and number + len(reading) < len(todo):
                    later = number + len(reading)
                    reading.append(self._read(todo[later], buffers[later % len(buffers)].bytes))
                yield from self._placed(reading.popleft())
                self._steps.fill.tier.flush()  # the next read takes this buffer
                if self._poison:
                    buffers[number % len(buffers)].bytes[: batch.num_bytes] = POISON
        finally:
            self._steps.fill.tier.flush()  # no copy is under way from what is given back
            for buffer in buffers:
                buffer.close()

    def _read(self, batch: Batch, into: Bytes) -> list[tuple[Extent, Bytes, Task]]:
        found, at = [], 0
        for extent in batch.extents:
            window = into[at : at + extent.num_bytes]
            found.append((extent, window, self._threads.submit(partial(_read_extent, extent, window))))
            at += extent.num_bytes
        return found

    def _placed(self, tasks: list[tuple[Extent, Bytes, Task]]) -> Iterator[Copy]:
        step, check = self._steps.fill, self._steps.check
        for extent, window, task in tasks:
            try:
                self._threads.wait(task)
            except _BlobFailed as failed:
                copy = failed.copy
                pair = f"pair {copy.index + 1} of {len(step.copies)} (layer {copy.layer}, expert {copy.expert})"
                raise FileError(f"the fill of the slots failed at {pair}: {failed}") from failed
            for copy in extent.copies:
                at = copy.offset - extent.offset
                blob = window[at : at + copy.num_bytes]
                if check:
                    check(copy.layer, copy.expert, blob)
                step.tier.write(copy.layer, copy.expert, blob)
                yield copy


def _read_extent(extent: Extent, into: Bytes, file: ExpertFile) -> None:
    """One read; where it fails each blob is read alone, so that an error names the one that cannot be had."""
    try:
        file.read(extent.offset, extent.num_bytes, into)
    except FileError:
        for copy in extent.copies:
            at = copy.offset - extent.offset
            try:
                file.read(copy.offset, copy.num_bytes, into[at : at + copy.num_bytes])
            except FileError as error:
                raise _BlobFailed(copy, error) from error


Failures = list[tuple[Copy, FileError]]


def _copy(threads: ReadingThreads, step: RamStep, todo: list[Batch], check: Check | None) -> Iterator[tuple[Extent, Failures]]:
    """Each extent once its blobs are in their places, with those that could not be read."""
    tasks: deque[tuple[Extent, Failures, Task]] = deque()
    for batch in todo:
        for extent in batch.extents:
            failures: Failures = []
            work = partial(_read_blobs, threads, step, extent, check, failures)
            tasks.append((extent, failures, threads.submit(work)))
    while tasks:
        extent, failures, task = tasks.popleft()
        threads.wait(task)
        yield extent, failures


def _read_blobs(threads: ReadingThreads, step: RamStep, extent: Extent, check: Check | None, failures: Failures, file: ExpertFile) -> None:
    """Straight into their places: the reader goes by a window of its own where the alignment does not allow it."""
    for copy in extent.copies:
        if threads.stopping:
            return
        place = step.tier.place(copy.layer, copy.expert)
        try:
            file.read(copy.offset, copy.num_bytes, place)
        except FileError as error:
            failures.append((copy, error))
            continue
        if check:
            check(copy.layer, copy.expert, place)


def _leave_to_file(steps: Steps, lost: Failures) -> None:
    for copy, _ in lost:
        steps.copy.tier.forget(copy.layer, copy.expert)
    if lost:
        copy, error = lost[0]
        steps.hooks.note(
            f"{len(lost)} of {len(steps.copy.copies)} experts of the RAM copy could not be read and are left to the file tier; "
            f"the first is expert {copy.expert} of layer {copy.layer}: {error}"
        )
