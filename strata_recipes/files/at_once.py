"""Ranges of a file read at once, each into its place, by threads of their own. Does not know what the bytes mean."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from queue import Empty, SimpleQueue

from strata_recipes.files.source import Bytes, ExpertFile

PARTS = 4  # of a lone range, read at once: one core's copy and one read's latency are then not all there is to it
PART_BYTES = 4096  # a part starts on its multiple: into other places the kernel was seen to copy at a third of the rate
WAIT_S = 0.2  # a wait without end cannot be interrupted on every system
JOIN_S = 1.0  # how long close waits for reads under way: Ctrl-C ends within 2 seconds


class _Job:
    """One read; only its thread changes it, but for `dropped`."""

    def __init__(self, offset: int, place: Bytes, ends: SimpleQueue[None]) -> None:
        self.offset, self.place, self.ends = offset, place, ends
        self.error: BaseException | None = None
        self.dropped = self.begun = self.ended = False

    @property
    def over(self) -> bool:
        """Nothing is written into its place any more."""
        return self.ended or (self.dropped and not self.begun)

    def run(self, file: ExpertFile) -> None:
        self.begun = True
        try:
            if not self.dropped:
                file.read(self.offset, self.place.size, self.place)
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self.error = error
        self.ended = True
        self.ends.put(None)


class ReadsAtOnce:
    """`num_threads` threads, each with a file that it alone reads: reads of one handle wait for each other on Windows. One caller."""

    def __init__(self, open_file: Callable[[], ExpertFile], num_threads: int) -> None:
        with ExitStack() as opened:
            self._files = [opened.enter_context(closing(open_file())) for _ in range(num_threads)]
            opened.pop_all()
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._jobs: list[_Job] = []
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, args=(file,), name=f"at-once-{i}", daemon=True) for i, file in enumerate(self._files)
        ]
        for thread in self._threads:
            thread.start()

    def read(self, ranges: Sequence[tuple[int, Bytes]]) -> None:
        """Fills each place with the file's bytes from its offset. All reads have ended when this returns, or raises the first's error."""
        if self._closed:
            raise RuntimeError("the reading threads are closed")
        self._wait()  # for those of a call that was interrupted, which write into its places
        ends: SimpleQueue[None] = SimpleQueue()
        jobs = [_Job(*part, ends) for one in ranges for part in _parts(*one, PARTS // len(ranges))]
        try:
            self._jobs = jobs
            for job in jobs:
                self._queue.put(job)
            self._wait()
        except BaseException:
            self._drop()
            raise
        self._jobs = []  # and its hold of the places
        if errors := [job.error for job in jobs if job.error]:
            raise errors[0]

    def close(self) -> None:
        """Forgets what is queued, ends the threads, closes the files. Closing twice is nothing.

        A thread that a dead drive holds keeps its file: the number of a closed one could become another file's.
        """
        self._closed = True
        self._drop()
        for _ in self._threads:
            self._queue.put(None)
        until = time.monotonic() + JOIN_S
        for thread, file in zip(self._threads, self._files, strict=True):
            thread.join(max(0.0, until - time.monotonic()))
            if not thread.is_alive():
                file.close()

    def _wait(self) -> None:
        for job in self._jobs:
            while not job.over:
                try:
                    job.ends.get(timeout=WAIT_S)
                except Empty:
                    continue

    def _drop(self) -> None:
        for job in self._jobs:
            job.dropped = True

    def _work(self, file: ExpertFile) -> None:
        while self._next(file):
            pass  # and holds no place while it waits

    def _next(self, file: ExpertFile) -> bool:
        job = self._queue.get()
        if job is not None:
            job.run(file)
        return job is not None


def _parts(offset: int, place: Bytes, most: int) -> Iterator[tuple[int, Bytes]]:
    step = -(-place.size // max(1, most) // PART_BYTES) * PART_BYTES
    for start in range(0, place.size, step or PART_BYTES):
        yield offset + start, place[start : start + step]
