"""What the page cache holds of the file's experts: a capacity in which the least recently used goes first. Knows no times.

An expert is still there if fewer bytes than the capacity were touched since its last use. Routers are skewed, so that is a
number of tokens, the window: experts that the last so many tokens chose are in the cache (Che's approximation).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from strata_recipes.simulate.routing import Routing, Weights

MOST = 1 << 26  # tokens after which nothing new is touched: more than any context


@dataclass(frozen=True)
class Reads:
    """Of one pass, in experts of a layer: used out of the cache, and read from the drive."""

    cached: float
    cold: float


class PageCache:
    """`capacity` in experts of a layer; `start_share`: of the file, in the cache before the first token."""

    def __init__(self, routing: Routing, held: Weights, capacity: float, start_share: float = 0.0) -> None:
        self._routing = routing
        self._held = held
        self._share = min(start_share, capacity / held.sum() if held.sum() else 0.0)
        self.window = self._window(capacity)

    def reads(self, before: float, tokens: float, passes: int = 1) -> Reads:
        """The mean of `passes` in a row over `tokens` each, once `before` tokens were routed through the cache."""
        touched = self._touched(tokens)
        total = passes * tokens
        fresh = self._touched(before + total) - self._touched(before)  # never seen before
        # a pass uses each expert once, so what counts is how many whole passes back the cache reaches
        keeps = math.inf if math.isinf(self.window) else math.floor(self.window / tokens) * tokens
        first = max(0.0, min(total, keeps - before))  # tokens until it is full
        begin = min(before, keeps)
        again = self._touched(begin + first) - self._touched(begin)
        if total > first:
            again += (total - first) / tokens * (self._touched(keeps + tokens) - self._touched(keeps))
        cold = fresh * (1.0 - self._share) + max(0.0, again - fresh)
        cold = min(cold / passes, touched)
        return Reads(touched - cold, cold)

    def _touched(self, tokens: float) -> float:
        return self._routing.touched(self._held, min(tokens, MOST))

    def _window(self, capacity: float) -> float:
        if self._touched(MOST) <= capacity:
            return math.inf
        low, high = 0.0, float(MOST)
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self._touched(middle) <= capacity else (low, middle)
        return low
