"""What may be asked of mode=bench and mode=verify: part of the schema, with its own file for its size."""

from __future__ import annotations

from dataclasses import dataclass, field

from strata_recipes.config.choices import BenchCache, ClaimSize
from strata_recipes.config.kinds import Bytes, Number, leaf


@dataclass
class Bench:
    """mode=bench: arms in interleaved pairs, each run a process of its own. The other arms are compared with the first."""

    arms: dict[str, list[str]] = field(default_factory=dict)  # name: overrides of the rest of the config
    checkouts: dict[str, str] = field(default_factory=dict)  # name of an arm: folder of another checkout of this project that runs it
    pairs: int = leaf("count", 3, low=1)
    metrics: list[str] = field(  # keys of metrics.json
        default_factory=lambda: [
            "ready_s",
            "first_token_s",
            "prefill.tokens_per_s",
            "decode.tokens_per_s",
            "startup.drive_bytes",
            "prefill.expert_bytes_read",
            "memory.peak_rss_bytes",
            "memory.lowest_available_bytes",
        ]
    )
    settle_s: Number = leaf("number", 0.0)  # of rest before each run
    cache: BenchCache = BenchCache.asis
    warm_up: bool = True  # one run of the first arm before the pairs, not counted: it compiles what the others find compiled
    same_tokens: bool = True  # a run whose tokens or logits differ from the first arm's is not counted
    stop_below: Bytes = leaf("bytes", 1 << 30)  # the watchdog stops a run once less RAM than this is available
    stop_after_s: Number = leaf("number", 2.0)  # for so long


@dataclass
class Verify:
    """mode=verify: runs the claims again."""

    claims: str | None = None  # the file; null: benchmarks/claims.yaml of the checkout
    size: ClaimSize = ClaimSize.small
    only: list[str] = field(default_factory=list)  # names of claims; empty: all of that size
