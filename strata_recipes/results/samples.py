"""Memory and drive use of this process every quarter second, by a thread of its own. Does not know what the run does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

import psutil

from strata_recipes.errors import StrataError

PERIOD_S = 0.25


@dataclass(frozen=True)
class Sample:
    """One row of samples.csv."""

    seconds: float
    available_bytes: int
    rss_bytes: int
    drive_bytes: int | None  # read from storage by this process; None where the system does not tell


def to_csv(samples: Sequence[Sample]) -> str:
    """A header and one line a sample; an empty cell for what was not told."""
    lines = [f"{s.seconds:.3f},{s.available_bytes},{s.rss_bytes},{'' if s.drive_bytes is None else s.drive_bytes}" for s in samples]
    return "\n".join(["seconds,available_bytes,rss_bytes,drive_bytes", *lines]) + "\n"


class Sampler:
    """Takes a sample at once, then every period until closed, then a last one; `with` starts and ends it."""

    def __init__(self, available_bytes: Callable[[], int], period_s: float = PERIOD_S) -> None:
        self._available_bytes = available_bytes
        self._period_s = period_s
        self._process = psutil.Process()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="samples", daemon=True)
        self._start = time.monotonic()
        self.samples: list[Sample] = []
        self.fault: str | None = None  # why the samples end early

    def __enter__(self) -> Sampler:
        self.samples.append(self.take())
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self.samples.append(self.take())

    def take(self) -> Sample:
        """The figures now."""
        elapsed = time.monotonic() - self._start
        return Sample(elapsed, self._available_bytes(), self._process.memory_info().rss, drive_bytes(self._process))

    def _loop(self) -> None:
        while not self._stop.wait(self._period_s):
            try:
                self.samples.append(self.take())
            except (OSError, psutil.Error, StrataError) as error:
                self.fault = f"{type(error).__name__}: {error}"  # no reason to end the run: the samples so far stay
                return


def drive_bytes(process: psutil.Process) -> int | None:
    """Bytes that this process has read from storage; None where the system does not tell."""
    if psutil.WINDOWS:  # counts reads from the page cache too
        return None
    try:
        return int(process.io_counters().read_bytes)
    except (AttributeError, psutil.AccessDenied):
        return None
