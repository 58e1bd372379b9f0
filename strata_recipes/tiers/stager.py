"""Reads ahead of use: threads fill buffers from a file. Knows ranges and buffers, not experts nor why they are read.

Job j reads into buffer j mod N, after the jobs before it on that buffer are done with it. Jobs may finish out of order;
the taker gets exactly the one that it asks for.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum

from strata_recipes.errors import FileError
from strata_recipes.files.aligned import AlignedBuffer
from strata_recipes.files.source import Bytes, ExpertFile
from strata_recipes.tiers.arena import POISON

ALIGNMENT = 4096
MakeBuffer = Callable[[int, int], AlignedBuffer]  # of so many bytes, on such a boundary
WAIT_S = 0.2  # a wait without end cannot be interrupted on every system
JOIN_S = 1.0  # how long close waits for all reads under way: Ctrl-C ends within 2 seconds


class State(Enum):
    queued = "queued"
    reading = "reading"
    ready = "ready"
    taken = "taken"
    done = "done"  # released, skipped or failed: its buffer is the next job's


class Job:
    """One range to read. Only its stager changes it; a caller hands it back."""

    def __init__(self, number: int, offset: int, num_bytes: int) -> None:
        self.number = number
        self.offset = offset
        self.num_bytes = num_bytes
        self.state = State.queued
        self.skipped = False
        self.error: FileError | None = None


class Stager:
    """`num_buffers` buffers of `buffer_bytes` and `num_threads` reading threads; one taker."""

    def __init__(
        self,
        file: ExpertFile,
        num_buffers: int,
        buffer_bytes: int,
        num_threads: int,
        *,
        poison: bool = False,
        make_buffer: MakeBuffer = AlignedBuffer,
    ) -> None:
        if num_buffers < 1 or num_threads < 1:
            raise ValueError(f"a stager of {num_buffers} buffers and {num_threads} threads never reads")
        self._file = file
        self._poison = poison
        self._buffer_bytes = buffer_bytes
        self._buffers = [make_buffer(buffer_bytes, ALIGNMENT) for _ in range(num_buffers)]
        self._lines: list[deque[Job]] = [deque() for _ in range(num_buffers)]  # by buffer; the first of a line has the buffer
        self._startable: list[tuple[int, Job]] = []  # heap by number: first in their lines; those skipped meanwhile are passed over
        self._submitted = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._failure: BaseException | None = None
        self._threads = [threading.Thread(target=self._work, name=f"stager-{i}", daemon=True) for i in range(num_threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, offset: int, num_bytes: int) -> Job:
        """Queues a read and returns at once."""
        if num_bytes > self._buffer_bytes:
            raise ValueError(f"{num_bytes} bytes do not fit a buffer of {self._buffer_bytes}")
        with self._changed:
            self._refuse_stopped()
            job = Job(self._submitted, offset, num_bytes)
            self._submitted += 1
            line = self._line(job)
            line.append(job)
            if line[0] is job:
                heapq.heappush(self._startable, (job.number, job))
                self._changed.notify_all()
        return job

    def take(self, job: Job) -> Bytes:
        """The job's bytes once they are read, valid until release. A failed read raises its FileError; its buffer is free again."""
        with self._changed:
            while job.state in (State.queued, State.reading):
                self._refuse_stopped()
                self._refuse_deadlock(job)
                self._changed.wait(WAIT_S)
            if job.error:
                raise job.error
            if job.state is not State.ready:
                raise RuntimeError(f"job {job.number} is {job.state.value}: it can be taken once, and not after skip")
            job.state = State.taken
            return self._bytes(job)

    def release(self, job: Job) -> None:
        """The taker is done with the bytes: the buffer passes on."""
        with self._changed:
            if job.state is State.taken:
                self._finish(job)

    def skip(self, job: Job) -> None:
        """The bytes are not wanted. A queued job is never read; one under way passes its buffer on when the read ends."""
        with self._changed:
            job.skipped = True
            if job.state in (State.queued, State.ready, State.taken):
                self._finish(job)

    def settle(self) -> None:
        """Waits until no read is under way: what was skipped while it was read is then counted."""
        with self._changed:
            while any(line and line[0].state is State.reading for line in self._lines):
                self._refuse_stopped()
                self._changed.wait(WAIT_S)

    def close(self) -> None:
        """Cancels what is queued and ends the threads; closing twice is nothing."""
        with self._changed:
            self._stopping = True
            for line in self._lines:
                line.clear()
            self._startable.clear()
            self._changed.notify_all()
        until = time.monotonic() + JOIN_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        for buffer in self._buffers:
            buffer.close()

    def _work(self) -> None:
        try:
            while (job := self._next()) is not None:
                self._read(job)
        except BaseException as error:  # noqa: BLE001 - raised again in the taker's thread, where it is seen
            with self._changed:
                self._failure = self._failure or error
                self._stopping = True
                self._changed.notify_all()

    def _next(self) -> Job | None:
        """The oldest job that is first in its line and not yet read; None when it is time to end."""
        with self._changed:
            while not self._stopping:
                while self._startable:
                    _, job = heapq.heappop(self._startable)
                    if job.state is State.queued:
                        job.state = State.reading
                        return job
                self._changed.wait(WAIT_S)
            return None

    def _read(self, job: Job) -> None:
        error: FileError | None = None
        try:
            self._file.read(job.offset, job.num_bytes, self._bytes(job))
        except FileError as failed:
            error = failed
        with self._changed:
            job.error, job.state = error, State.ready
            if error or job.skipped:
                self._finish(job)
            self._changed.notify_all()

    def _finish(self, job: Job) -> None:
        if self._poison and job.state in (State.ready, State.taken):
            self._bytes(job)[:] = POISON
        line = self._line(job)
        had_buffer = bool(line) and line[0] is job
        if job in line:  # not so after close
            line.remove(job)
        if had_buffer and line:
            heapq.heappush(self._startable, (line[0].number, line[0]))
        job.state = State.done
        self._changed.notify_all()

    def _line(self, job: Job) -> deque[Job]:
        return self._lines[job.number % len(self._lines)]

    def _bytes(self, job: Job) -> Bytes:
        return self._buffers[job.number % len(self._buffers)].bytes[: job.num_bytes]

    def _refuse_stopped(self) -> None:
        if self._failure:
            raise self._failure
        if self._stopping:
            raise RuntimeError("the stager is closed")

    def _refuse_deadlock(self, job: Job) -> None:
        """The one taker cannot wait for a job whose buffer it holds, or will only ask for later."""
        holder = self._line(job)[0]
        if holder is not job and holder.state in (State.ready, State.taken):
            state = holder.state.value
            raise RuntimeError(f"job {job.number} waits for job {holder.number}, which is {state}: release or skip that one first")
