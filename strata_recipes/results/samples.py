"""Memory and drive use of this process every quarter second, by a thread of its own. Does not know what the run does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from types import TracebackType

import psutil

from strata_recipes.engine.process import process_use
from strata_recipes.errors import StrataError

PERIOD_S = 0.25


@dataclass(frozen=True)
class Sample:
    """One row of samples.csv."""

    seconds: float
    available_bytes: int
    rss_bytes: int
    drive_bytes: int | None  # read from storage by this process; None where the system does not tell
    major_faults: int | None = None  # of this process
    pages_in: int | None = None  # from swap, of the whole system
    pages_out: int | None = None


def to_csv(samples: Sequence[Sample]) -> str:
    """A header and one line a sample; an empty cell for what was not told."""
    names = [field.name for field in fields(Sample)]
    rows = ([f"{sample.seconds:.3f}", *(getattr(sample, name) for name in names[1:])] for sample in samples)
    return "\n".join([",".join(names), *(",".join("" if cell is None else str(cell) for cell in row) for row in rows)]) + "\n"


class Sampler:
    """Takes a sample at once, then every period until closed, then a last one; `with` starts and ends it."""

    def __init__(self, available_bytes: Callable[[], int], period_s: float = PERIOD_S) -> None:
        self._available_bytes = available_bytes
        self._period_s = period_s
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
        use = process_use()
        return Sample(elapsed, self._available_bytes(), use.rss_bytes, use.drive_bytes, use.major_faults, use.pages_in, use.pages_out)

    def _loop(self) -> None:
        while not self._stop.wait(self._period_s):
            try:
                self.samples.append(self.take())
            except (OSError, psutil.Error, StrataError) as error:
                self.fault = f"{type(error).__name__}: {error}"  # no reason to end the run: the samples so far stay
                return
