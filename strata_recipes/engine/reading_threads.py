"""Threads that read, each with a file handle of its own. Knows tasks, not what is read nor why."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from strata_recipes.files.source import ExpertFile

WAIT_S = 0.2  # a wait without end cannot be interrupted on every system
JOIN_S = 1.0  # how long close waits for reads under way: Ctrl-C ends within 2 seconds

Work = Callable[[ExpertFile], None]


class Task:
    """One piece of work; only its threads change it."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.done = False
        self.error: BaseException | None = None


class ReadingThreads:
    """One thread a file, which it alone reads. Tasks are begun in the order in which they were submitted."""

    def __init__(self, files: Sequence[ExpertFile]) -> None:
        self._files = files
        self._queue: deque[Task] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._threads = [threading.Thread(target=self._run, args=(file,), name=f"startup-{i}", daemon=True) for i, file in enumerate(files)]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Work) -> Task:
        """Queues work and returns at once."""
        task = Task(work)
        with self._changed:
            self._queue.append(task)
            self._changed.notify_all()
        return task

    def wait(self, task: Task) -> None:
        """Returns when the task is done; raises what it raised."""
        with self._changed:
            while not task.done:
                self._changed.wait(WAIT_S)
        if task.error:
            raise task.error

    @property
    def stopping(self) -> bool:
        """Long work asks between two reads."""
        return self._stopping

    def close(self) -> None:
        """Forgets what is queued, waits for the reads under way, closes the files. Closing twice is nothing.

        A thread that a dead drive holds keeps its file: the number of a closed one could become another file's.
        """
        with self._changed:
            self._stopping = True
            self._queue.clear()
            self._changed.notify_all()
        until = time.monotonic() + JOIN_S
        for thread, file in zip(self._threads, self._files, strict=True):
            thread.join(max(0.0, until - time.monotonic()))
            if not thread.is_alive():
                file.close()

    def _run(self, file: ExpertFile) -> None:
        while (task := self._next()) is not None:
            try:
                task.work(file)
            except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits for it
                task.error = error
            with self._changed:
                task.done = True
                self._changed.notify_all()

    def _next(self) -> Task | None:
        with self._changed:
            while not self._stopping:
                if self._queue:
                    return self._queue.popleft()
                self._changed.wait(WAIT_S)
            return None
