"""Holds a link to a stated rate: a token bucket that all readers of the link share. Does not know what is moved."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BURST_S = 0.005  # of the link's time may be made up for: what a sleep oversleeps is not lost
NAP_S = 0.2  # a wait without end cannot be interrupted on every system


class Pace:
    """One link at `rate` bytes a second. Safe from any thread; transfers queue up behind each other as on a wire."""

    def __init__(self, rate: float, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        if rate <= 0:
            raise ValueError(f"a link of {rate:g} bytes/s never ends")
        self.rate = rate
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = 0.0
        self.busy_s = 0.0  # time that the link was asked for, whoever waited

    @contextmanager
    def passing(self, num_bytes: float, rate: float | None = None) -> Iterator[None]:
        """Ends no sooner than the link would have moved so many bytes, at `rate` where the transfer is slower than the link.

        What happens inside goes on meanwhile.
        """
        until = self._reserve(num_bytes / (rate or self.rate))
        yield
        while (left := until - self._clock()) > 0:
            self._sleep(min(left, NAP_S))

    def _reserve(self, seconds: float) -> float:
        with self._lock:
            self._free_at = max(self._clock() - BURST_S, self._free_at) + seconds
            self.busy_s += seconds
            return self._free_at
