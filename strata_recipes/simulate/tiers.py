"""A layer's experts by tier and how often each tier is asked: counts of expert ids, expected. Knows no times."""

from __future__ import annotations

from dataclasses import dataclass

from strata_recipes.pack.index import Geometry
from strata_recipes.simulate.load import TierLoad
from strata_recipes.simulate.page_cache import PageCache, Reads
from strata_recipes.simulate.routing import Routing, split


@dataclass(frozen=True)
class Touched:
    """Distinct experts of a layer that a pass uses, by where they come from."""

    vram: float
    ram: float
    cached: float
    cold: float

    @property
    def file(self) -> float:
        return self.cached + self.cold

    @property
    def total(self) -> float:
        return self.vram + self.ram + self.file


class Tiers:
    """The hottest experts in VRAM, the next in RAM, the rest in the file, of which the page cache holds what it can."""

    def __init__(self, g: Geometry, load: TierLoad, stride_bytes: int) -> None:
        shares = tuple(count / g.total_experts for count in (load.vram_slots, load.ram_blobs, load.file_blobs))
        self._load = load
        self.routing = Routing(g.num_experts, g.top_k, load.skew, load.heat)
        self.vram, self.ram, self.file = split(g.num_experts, shares, load.ranked)
        self.cache = PageCache(self.routing, self.file, load.cache_bytes / stride_bytes, load.cached_share)

    @property
    def in_file(self) -> float:
        return float(self.file.sum())

    def prompt(self, before: float, tokens: float, passes: int, direct: bool) -> Touched:
        """The mean of `passes` over `tokens` each. Read past the cache, what lies in it stays as it was before the prompt."""
        reads = self._beside(tokens) if direct else self.cache.reads(before, tokens, passes)
        return self._touched(tokens, reads)

    def reply(self, before: float, tokens: int, drafted: int, rounds: float, direct: bool) -> Touched:
        """The mean round of a reply, after `before` tokens went through the cache; a choice that repeats a recent one is in it."""
        touched = self.routing.touched(self.file, drafted)
        if direct:
            return self._touched(drafted, Reads(0.0, touched))
        cold = self.cache.reads(before, 1.0, max(1, tokens)).cold * drafted * (1.0 - self._load.locality)
        cold = min(cold, touched)
        return self._touched(drafted, Reads(touched - cold, cold))

    def hits(self) -> tuple[float, float, float]:
        """Shares of a token's choices by tier."""
        return tuple(self.routing.choices(held) / self.routing.top_k for held in (self.vram, self.ram, self.file))  # type: ignore[return-value]

    def _beside(self, tokens: float) -> Reads:
        touched = self.routing.touched(self.file, tokens)
        cached = touched * min(1.0, self._load.cached_share)
        return Reads(cached, touched - cached)

    def _touched(self, tokens: float, reads: Reads) -> Touched:
        vram, ram = (self.routing.touched(held, tokens) for held in (self.vram, self.ram))
        return Touched(vram, ram, reads.cached, reads.cold)
