"""The plan: what will be done, decided to the byte, each decision with its reason. Frozen values, JSON both ways."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

PLAN_VERSION = 1


@dataclass(frozen=True)
class Decision:
    """One choice: its config key or subject, what was chosen, and why, with the numbers (the runner-up's too)."""

    name: str
    value: str | int | float | bool | None
    because: str


@dataclass(frozen=True)
class Share:
    """A named part of a budget."""

    name: str
    num_bytes: int


@dataclass(frozen=True)
class Budget:
    """One memory: what may be used, what for. The parts never sum to more than `limit_bytes`."""

    name: str  # vram or ram
    limit_bytes: int  # usable: available less reserve or headroom
    because: str
    parts: tuple[Share, ...]

    @property
    def used_bytes(self) -> int:
        return sum(part.num_bytes for part in self.parts)

    def part(self, name: str) -> int:
        """Bytes of a named part, 0 where the budget has none."""
        return sum(part.num_bytes for part in self.parts if part.name == name)


@dataclass(frozen=True)
class AdaptPlan:
    """While a reply is written, the hottest experts outside take places of the coldest slots."""

    every: int  # tokens
    swaps: int  # at most, each time
    decay: float  # what earlier choices are worth of new ones, once each time


@dataclass(frozen=True)
class ExpertsPlan:
    """Experts by tier: the first `vram_slots` of the order in VRAM, the next `ram_blobs` in RAM, the rest in the file."""

    mode: str
    order: str  # "expert id, then layer", or the profile's id
    vram_bytes: int  # payload of the slots
    ram_bytes: int
    file_bytes: int
    file_io: str  # buffered or direct
    file_io_threshold_bytes: int  # buffered while RAM available after the copy is at least this
    verify: bool
    ram_start: int | None = None  # RAM also holds the order's blobs from here to vram_slots (full_arena: 0); None: none of them
    adapt: AdaptPlan | None = None  # None: every expert stays where the start put it
    counted: bool = False  # what a reply's tokens choose is counted, to be kept as a profile


@dataclass(frozen=True)
class StartupPlan:
    strategy: str
    fill_bytes: int  # into VRAM slots
    copy_bytes: int  # into the RAM tier
    merge_bytes: int = 32 << 20  # the largest read
    fill_batch: int = 64  # blobs
    copy_batch: int = 32
    threads: int = 6  # that read unbuffered
    depth: int = 2  # fill batches in memory at once
    stage_bytes: int = 0  # for reads that do not land in their place; given back after the start
    warm_bytes: int = 0  # of the file tier that the page cache is filled with after the start


@dataclass(frozen=True)
class PrefillPlan:
    order: str  # chunked or layer_major
    chunk: int  # tokens of one mixer pass: the grid
    prompt_tokens: int
    super_chunk: int  # tokens of one pass over the layers, a multiple of chunk; in chunked order the chunk itself
    residuals: str | None = None  # vram or host: where a super-chunk's residual streams lie; None where none are kept
    dense: str = "resident"  # or streamed: the layers' dense weights go up from RAM once a super-chunk, two layers of them in VRAM
    prefetch: bool = False  # a layer's file experts are asked for before the routing is known
    direct: bool = False  # what the page cache does not hold is read past it
    direct_min: float | None = None  # from this cached share on a blob comes out of the cache; None: it is not asked
    warm: bool = False  # the kernel reads the next layers' file experts ahead


@dataclass(frozen=True)
class DecodePlan:
    sampler: str
    max_new_tokens: int
    stop_at_eos: bool
    temperature: float
    top_k: int
    top_p: float
    seed: int
    draft: str = "none"  # or suffix: where guesses come from
    draft_tokens: int = 0  # of one guess, at most


@dataclass(frozen=True)
class KvPlan:
    format: str
    max_context: int
    num_bytes: int
    resident_tokens: int | None = None  # whose keys and values lie in VRAM, the others' in page-locked RAM; None: all


@dataclass(frozen=True)
class ComputePlan:
    arithmetic: str
    threads: int
    device: str  # "cpu", or "cuda" of the planned PC
    runs_on: str = "cpu"  # what computes here: the CPU stands in where the planned PC's card is not


@dataclass(frozen=True)
class ModelPlan:
    name: str
    pack_id: str
    pack: str  # folder as the user stated it, or "cache"
    scale: float  # budgets were multiplied by this (1.0: not a scale model)
    shape_id: str = ""  # xxh3-64 hex over geometry, formats and sizes: what exactly was planned for


@dataclass(frozen=True)
class WorkloadPlan:
    """Which prompt: its source and what fixes its content."""

    source: str  # token_ids_file, tokens, text_file, messages or text
    template: str
    digest: str  # xxh3-64 hex over what the config states of it
    seed: int


@dataclass(frozen=True)
class OutputPlan:
    logits: str


@dataclass(frozen=True)
class Throttle:
    """Links held to the planned PC's rates, bytes a second."""

    direct: float
    faults: float
    pcie: float | None  # None: no card is planned


@dataclass(frozen=True)
class Prediction:
    """Seconds and rates from the simulator; a prediction, never shown as a measurement."""

    ready_s: float
    prefill_s: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    lowest_available_bytes: int = 0  # of RAM, while the start copies
    start_bound: str = ""  # the busiest resource of each phase, and its share of the time
    prefill_bound: str = ""
    decode_bound: str = ""


@dataclass(frozen=True)
class Plan:
    version: int
    hardware: str
    os: str
    model: ModelPlan
    vram_slots: int
    ram_blobs: int
    file_blobs: int
    vram: Budget
    ram: Budget
    experts: ExpertsPlan
    startup: StartupPlan
    prefill: PrefillPlan
    decode: DecodePlan
    kv: KvPlan
    compute: ComputePlan
    workload: WorkloadPlan
    output: OutputPlan
    emulate: tuple[str, ...]  # how memory and links of another PC are stood in for
    throttle: Throttle | None  # None: links run at this machine's rates
    predicted: Prediction
    decisions: tuple[Decision, ...]
    notes: tuple[str, ...]

    def to_json(self) -> str:
        """The plan as indented JSON, keys in the order above; the same plan gives the same bytes."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def plan_dict(text: str) -> dict[str, Any]:
    """A plan.json as plain data, for comparing two plans."""
    data = json.loads(text)
    if data.get("version") != PLAN_VERSION:
        raise ValueError(f"plan.json has version {data.get('version')!r}, this build reads {PLAN_VERSION}")
    return dict(data)
