"""How often experts are chosen, from the skew of a router's row norms. Knows no bytes and no times.

An expert whose router row has norm s scores s * z with z normal, and is chosen when that passes one threshold, set so that
`top_k` are chosen on average. Norms are lognormal(skew). At 512 experts, top-10 and skew 0.45: 59 % touched by 512 tokens
and 79 / 94 % of choices in the hottest 20 / 36 %, where 61 % and 77 / 93 % were seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

DEFAULT_LOCALITY = 0.3  # a peer's cache of the last used 5 / 20 / 36 % held 56 / 84 / 92 % of choices where the hottest hold 36 / 77 / 93
DEFAULT_SKEW = 0.45  # of the seed's model; another model's own is not known before it has run
Weights = npt.NDArray[np.float64]  # [experts], hottest first: the share of each that a tier holds


@lru_cache(maxsize=32)
def chances(num_experts: int, top_k: int, skew: float) -> tuple[float, ...]:
    """Chance of each expert of a layer to be chosen for a token, hottest first; they sum to top_k."""
    if top_k >= num_experts:
        return (1.0,) * num_experts
    normal = NormalDist()
    norms = [math.exp(-skew * normal.inv_cdf((i + 0.5) / num_experts)) for i in range(num_experts)]
    low, high = -40.0, 40.0
    for _ in range(60):  # bisection: 80 / 2**60 is below a double's resolution here
        threshold = (low + high) / 2
        chosen = [0.5 * math.erfc(threshold / norm / math.sqrt(2)) for norm in norms]
        low, high = (threshold, high) if sum(chosen) > top_k else (low, threshold)
    return tuple(sorted(chosen, reverse=True))


@lru_cache(maxsize=32)
def counted(heat: tuple[float, ...], top_k: int) -> tuple[float, ...]:
    """The same from counts: shares of all choices, times top_k; no expert is chosen twice for a token."""
    found = np.array(sorted(heat, reverse=True)) / sum(heat) * top_k
    for _ in range(len(heat)):  # what is over 1 goes to the others, in their shares
        over = found > 1.0
        rest = top_k - over.sum()
        if not over.any() or rest <= 0 or found[~over].sum() <= 0:
            break
        found = np.where(over, 1.0, found * rest / found[~over].sum())
    return tuple(float(chance) for chance in np.minimum(found, 1.0))


@dataclass(frozen=True)
class Routing:
    """One layer's router, the same for all layers."""

    num_experts: int
    top_k: int
    skew: float
    heat: tuple[float, ...] = ()  # how often each was chosen, hottest first; empty: the skew says it

    @property
    def _chances(self) -> Weights:
        if self.heat:
            return np.array(counted(self.heat, self.top_k))
        return np.array(chances(self.num_experts, self.top_k, self.skew))

    def touched(self, held: Weights, num_tokens: float) -> float:
        """Distinct experts of those held that `num_tokens` tokens choose, expected."""
        return float((held * (1.0 - (1.0 - self._chances) ** num_tokens)).sum())

    def choices(self, held: Weights) -> float:
        """Choices a token that fall on experts held, expected: top_k if all are."""
        return float((held * self._chances).sum())


def split(num_experts: int, shares: tuple[float, ...], ranked: bool) -> tuple[Weights, ...]:
    """A layer's experts by tier: by heat where the order is a profile's, a like share of each where it is not."""
    if not ranked:
        return tuple(np.full(num_experts, share) for share in shares)
    tiers, start = [], 0.0
    for share in shares:
        tiers.append(hottest(np.ones(num_experts), start, start + share * num_experts))
        start += share * num_experts
    return tuple(tiers)


def hottest(held: Weights, start: float, stop: float) -> Weights:
    """Of the experts held, those whose running count lies in start .. stop, with the fractions at both ends."""
    ends = np.cumsum(held)
    begins = ends - held
    inside: Weights = np.clip(np.minimum(ends, stop) - np.maximum(begins, start), 0.0, held)
    return inside
