"""What a run measured: a fixed set of keys, null where a figure does not apply or was not taken. Sizes in bytes, times in seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, is_dataclass


@dataclass(frozen=True)
class StartupMetrics:
    strategy: str | None = None
    fill_s: float | None = None
    copy_s: float | None = None
    purge_s: float | None = None
    fill_bytes: int | None = None
    copy_bytes: int | None = None
    drive_bytes: int | None = None
    cached_bytes: int | None = None
    extents: int | None = None
    fallback: str | None = None
    interpreter_s: float | None = None  # process start to the session: imports, probes, the plan
    device_s: float | None = None  # a card's context and self-test
    dense_s: float | None = None  # dense weights
    kernels_s: float | None = None  # compiling of kernels that was not done when the copies were
    pinning_s: float | None = None  # page-locking that was not done when the copies were


@dataclass(frozen=True)
class MemoryMetrics:
    lowest_available_bytes: int | None = None
    peak_rss_bytes: int | None = None
    rss_before_fill_bytes: int | None = None
    major_faults: int | None = None
    pages_in: int | None = None
    pages_out: int | None = None
    vram_peak_bytes: int | None = None
    vram_budget_bytes: int | None = None
    ram_peak_bytes: int | None = None
    ram_budget_bytes: int | None = None


@dataclass(frozen=True)
class ExpertsMetrics:
    vram_slots: int | None = None
    ram_blobs: int | None = None
    file_blobs: int | None = None


@dataclass(frozen=True)
class PrefillMetrics:
    order: str | None = None
    tokens: int | None = None
    seconds: float | None = None
    tokens_per_s: float | None = None
    expert_bytes_read: int | None = None
    expert_bytes_touched: int | None = None
    expert_bytes_one_pass: int | None = None
    expert_bytes_staged: int | None = None
    drive_bytes: int | None = None
    super_chunks: int | None = None


@dataclass(frozen=True)
class DecodeMetrics:
    tokens: int | None = None
    seconds: float | None = None
    tokens_per_s: float | None = None
    vram_hits: int | None = None
    ram_hits: int | None = None
    file_hits: int | None = None
    drafted: int | None = None  # tokens that were guessed and verified
    accepted: int | None = None  # of those, tokens of the reply
    swaps: int | None = None  # experts that took another's slot while the reply was written; None where they stay in place
    swap_s: float | None = None  # of `seconds`
    wait_s: float | None = None  # beside `seconds`: after the first token, for a card's kernels and memory; None: there was no second
    fallback: str | None = None  # why passes were not computed as planned


@dataclass(frozen=True)
class PredictedMetrics:
    """From the simulator, never measured."""

    ready_s: float | None = None
    prefill_tokens_per_s: float | None = None
    decode_tokens_per_s: float | None = None


@dataclass(frozen=True)
class EmulatedMetrics:
    """What was not this machine's own: facts of another PC, and how each memory and link was stood in for."""

    facts: tuple[str, ...] = ()
    by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metrics:
    ready_s: float | None = None  # process start to the last start-up copy
    first_token_s: float | None = None
    startup: StartupMetrics = field(default_factory=StartupMetrics)
    memory: MemoryMetrics = field(default_factory=MemoryMetrics)
    experts: ExpertsMetrics = field(default_factory=ExpertsMetrics)
    prefill: PrefillMetrics = field(default_factory=PrefillMetrics)
    decode: DecodeMetrics = field(default_factory=DecodeMetrics)
    predicted: PredictedMetrics = field(default_factory=PredictedMetrics)
    emulated: EmulatedMetrics = field(default_factory=EmulatedMetrics)
    simulated: bool = False  # true: every figure is the simulator's, nothing ran

    def to_json(self) -> str:
        """Indented JSON, keys in the order above; a NaN is refused rather than written."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def missing(self) -> Iterator[str]:
        """Dotted names of the figures that were not taken."""
        return _missing(self, "")


def rate(amount: float, seconds: float | None) -> float | None:
    """Amount a second; None where no time was taken or it was too short to tell."""
    return amount / seconds if seconds else None


def _missing(part: object, prefix: str) -> Iterator[str]:
    if is_dataclass(part):
        for item in fields(part):
            yield from _missing(getattr(part, item.name), f"{prefix}.{item.name}".lstrip("."))
    elif part is None:
        yield prefix
