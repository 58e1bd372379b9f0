"""What is simulated: sizes, counts and orders of one candidate plan. Plain values; knows no rates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StartLoad:
    """What a start copies, in which batches, and how much of the file the page cache holds for it."""

    strategy: str
    fill_bytes: int
    copy_bytes: int
    cached_share: float  # that stays cached beside the RAM copy
    purge_s: float  # of the cached pages, before the first unbuffered read
    fill_batches: int = 1
    depth: int = 1  # fill batches in memory: the next is read while the present one is copied
    dense_cached_share: float = 0.0


@dataclass(frozen=True)
class TierLoad:
    """Experts by tier, and how they are chosen."""

    vram_slots: int
    ram_blobs: int
    file_blobs: int
    ranked: bool  # the order is by heat, not by expert id
    skew: float
    locality: float  # share of a reply's choices that repeat a recent one
    cache_bytes: int  # of page cache for the file tier
    cached_share: float = 0.0  # of the file, cached before the prompt
    heat: tuple[float, ...] = ()  # how often a layer's experts were chosen, hottest first; empty: the skew says it


@dataclass(frozen=True)
class PromptLoad:
    tokens: int
    chunk: int
    super_chunk: int | None  # tokens of a layer-major pass; None: chunked order
    streams_cross: bool  # a super-chunk's residual streams lie across the link, in RAM
    direct: bool  # the file is read past the page cache
    prefetch: bool  # a layer's file experts are asked for before their routing is known
    buffers: float  # blobs read and not yet used, at most
    dense_streamed: bool = False  # the layers' dense weights go up once a pass, and once more for the reply


@dataclass(frozen=True)
class ReplyLoad:
    """`drafted` tokens go through the layers at once and give `tokens_a_round` of the reply; 1 and 1 without drafts."""

    new_tokens: int
    kv_format: str
    direct: bool
    drafted: int = 1
    tokens_a_round: float = 1.0
    warm_tokens: int = 0  # that earlier replies had sent through the page cache
    resident: int | None = None  # tokens whose keys and values lie on the card, the others' across the link; None: all
    cpu_share: float = 0.0  # of the experts that no slot holds: computed by the processor where they lie, not on the card


@dataclass(frozen=True)
class MemoryLoad:
    """RAM: what a start finds available, what the run's other parts take, and the buffers of an unbuffered start."""

    available_bytes: int
    parts_bytes: int
    start_bytes: int


@dataclass(frozen=True)
class Load:
    start: StartLoad
    tiers: TierLoad
    prompt: PromptLoad
    reply: ReplyLoad
    memory: MemoryLoad
