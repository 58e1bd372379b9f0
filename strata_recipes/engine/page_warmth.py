"""Has the kernel read the file tier's experts into the page cache once a start is done, in the plan's order. Reads nothing itself."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from strata_recipes.tiers.lookup import ExpertTiers
from strata_recipes.units import gib

BLOBS_AHEAD = 16  # asked for and not there yet: enough for the drive, few beside what a prompt or a reply asks for
LOOK_S = 0.005
GIVE_UP_S = 5.0  # a blob that is not there by then was pushed out again


class PageWarmth:
    """A thread of its own, beside prompts and replies, until `most_bytes` were asked for. `close` ends it, done or not."""

    def __init__(self, tiers: ExpertTiers, order: Sequence[tuple[int, int]], most_bytes: int, log: Callable[[str], None]) -> None:
        self._tiers, self._order, self._most_bytes, self._log = tiers, order, most_bytes, log
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="page-warmth", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until it is done."""
        self._thread.join()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        began, asked, there = time.perf_counter(), 0, True
        under_way: deque[tuple[int, int]] = deque()
        for layer, expert in self._order:
            stride = self._tiers.index.layers[layer].stride
            if asked + stride > self._most_bytes or not there or self._stopping.is_set():
                break
            if self._tiers.in_file(layer, [expert]):
                under_way.append((self._tiers.index.offset(layer, expert), stride))
                self._tiers.will_need(*under_way[-1])
                asked += stride
            if len(under_way) > BLOBS_AHEAD:
                there = self._came(*under_way.popleft())
        there = all(self._came(*one) for one in under_way) and there
        if not self._stopping.is_set():
            ending = "" if there else ", of which some was pushed out again"
            took = time.perf_counter() - began
            self._log(f"startup.warm: {gib(asked)} of the file tier were read into the page cache in {took:.1f} s{ending}")

    def _came(self, offset: int, num_bytes: int) -> bool:
        """Whether the page cache holds that range, once it does, or is not known to (a file of another user's)."""
        until = time.perf_counter() + GIVE_UP_S
        while self._tiers.cached_share(offset, num_bytes) not in (1.0, None):
            if time.perf_counter() > until or self._stopping.wait(LOOK_S):
                return False
        return True
