"""What a session counts of itself, as values. Measures nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryFigures:
    """What the session's memory came to; the names are those of metrics.json. The lowest RAM and the highest RSS are a sampler's."""

    rss_before_fill_bytes: int
    major_faults: int | None
    pages_in: int | None
    pages_out: int | None
    vram_peak_bytes: int
    vram_budget_bytes: int
    ram_peak_bytes: int
    ram_budget_bytes: int


@dataclass(frozen=True)
class StartParts:
    """Seconds of a start before its copies."""

    device_s: float = 0.0  # a card's context, its self-test
    dense_s: float = 0.0  # the dense weights
    kernels_s: float = 0.0  # of compiling kernels, what was left when the copies were done


@dataclass(frozen=True)
class Threads:
    """As the plan says, and never more than this PC's cores. Torch's bits depend on the number, our kernels' do not."""

    torch: int
    kernels: int
