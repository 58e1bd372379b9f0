"""What a user may ask for: one dataclass a group, every leaf typed. Defaults live in conf/, checks in compose.py.

Dataclasses are not frozen (Hydra fills them); the Plan is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from strata_recipes.config.bench_schema import Bench, Verify
from strata_recipes.config.choices import (
    Arithmetic,
    Dense,
    Device,
    Draft,
    EmulateLinks,
    EmulateRam,
    ExpertsMode,
    FileIo,
    KvFormat,
    Logits,
    ModeName,
    Order,
    Os,
    Residuals,
    Sampler,
    Source,
    Strategy,
    Template,
)
from strata_recipes.config.kinds import AutoBool, AutoBytes, AutoCount, Bytes, Number, Rate, leaf
from strata_recipes.config.task_schema import Calibrate, Profile, Sweep


@dataclass
class Gpu:
    """The card; null facts are probed. `vram: 0` states that there is none."""

    name: str | None = None
    capability: str | None = None  # compute capability, in quotes: "8.6"
    vram: Bytes | None = leaf("bytes")  # of the card; 0 states that there is none
    free: Bytes | None = leaf("bytes")  # of vram, before this process; null: all of it on a declared PC
    reserve: AutoBytes = leaf("bytes", "auto", auto=True)  # VRAM left free for display and driver
    bandwidth: Rate | None = leaf("rate")  # of VRAM
    flops: Number | None = leaf("number")  # dense fp16 operations a second
    pcie: Rate | None = leaf("rate")  # from page-locked RAM to the card


@dataclass
class Cpu:
    cores: int | None = leaf("count", low=1)  # that this process may use
    bandwidth: Rate | None = leaf("rate")  # of RAM
    flops: Number | None = leaf("number")  # f32 operations a second that the expert kernels reach


@dataclass
class Drive:
    direct: Rate | None = leaf("rate")  # large reads past the page cache
    faults: Rate | None = leaf("rate")  # through page faults of a cold mapping
    cached: Rate | None = leaf("rate")  # copies out of a warm page cache
    cached_share: Number | None = leaf("share")  # of the pack's experts.bin, in the page cache before the start


@dataclass
class Efficiency:
    """What of the stated rates the arithmetic reaches; null: a default, told as estimated."""

    prompt: Number | None = leaf("share")  # of flops, in the matmuls of a prompt
    decode: Number | None = leaf("share")  # of the memory's bandwidth, in a reply


@dataclass
class Hardware:
    """Facts of a PC: stated here, or null and then probed on this one."""

    name: str = "auto"
    os: Os | None = None
    ram: Bytes | None = leaf("bytes", low=1)
    available: Bytes | None = leaf("bytes")  # RAM a new process can take at the start
    headroom: AutoBytes = leaf("bytes", "auto", auto=True)  # RAM left free
    cpu: Cpu = field(default_factory=Cpu)
    gpu: Gpu = field(default_factory=Gpu)
    drive: Drive = field(default_factory=Drive)
    efficiency: Efficiency = field(default_factory=Efficiency)
    start_s: Number | None = leaf("number")  # from the process's start until the start-up copies
    probed: list[str] = field(default_factory=list)  # filled by a run: keys whose value was found, not stated


@dataclass
class Geometry:
    """A declared or synthetic model's shape; names as in pack.index.Geometry. Null: read from the source."""

    num_layers: int | None = leaf("count", low=1)
    hidden: int | None = leaf("count", low=1)
    vocab: int | None = leaf("count", low=1)
    context_length: int | None = leaf("count", low=1)
    norm_eps: Number | None = leaf("number")
    attention_interval: int | None = leaf("count", low=1)
    gdn_key_heads: int | None = leaf("count", low=1)
    gdn_value_heads: int | None = leaf("count", low=1)
    gdn_head_dim: int | None = leaf("count", low=1)
    gdn_conv: int | None = leaf("count", low=1)
    query_heads: int | None = leaf("count", low=1)
    kv_heads: int | None = leaf("count", low=1)
    head_dim: int | None = leaf("count", low=1)
    rotary_dim: int | None = leaf("count", low=2)
    rope_base: Number | None = leaf("number", low=1)
    rope_sections: list[int] | None = None
    indexer_heads: int | None = leaf("count", low=1)
    indexer_dim: int | None = leaf("count", low=1)
    index_block: int | None = leaf("count", low=1)
    index_budget: int | None = leaf("count", low=1)
    streams: int | None = leaf("count", low=2)
    stream_rank: int | None = leaf("count", low=1)
    num_experts: int | None = leaf("count", low=1)
    top_k: int | None = leaf("count", low=1)
    expert_width: int | None = leaf("count", low=1)
    shared_width: int | None = leaf("count", low=1)
    ngram_layers: list[int] | None = None
    ngram_size: int | None = leaf("count", low=2)
    ngram_heads: int | None = leaf("count", low=1)
    ngram_width: int | None = leaf("count", low=1)
    ngram_conv: int | None = leaf("count", low=1)
    ngram_rows: int | None = leaf("count")


@dataclass
class ExpertFormats:
    """So many layers, in order, whose experts are stored so."""

    layers: int = leaf("count", 1, low=1)
    gate: str = "Q2_0"
    up: str = "Q2_0"
    down: str = "Q2_0"


@dataclass
class Model:
    name: str = "demo"
    kind: Source = Source.gguf
    source: str | None = "shipped:storyteller"  # a GGUF file (any shard of a split one) or a Hugging Face folder
    pack: str | None = None  # folder of the pack; null: a cache folder keyed by the source
    scale_of: str | None = None  # named model of which this one is a scale model: budgets shrink with expert bytes
    geometry: Geometry = field(default_factory=Geometry)
    experts: list[ExpertFormats] = field(default_factory=list)
    dense: str | None = None  # format of the dense tensors of a declared or synthetic model
    seed: int | None = leaf("count")  # synthetic weights
    skew: Number | None = leaf("number")  # synthetic router: lognormal sigma of its row norms
    locality: Number | None = leaf("share")  # of a reply's choices: those that repeat a recent one
    note: str | None = None  # what of the above is a fit or an estimate


@dataclass
class Adapt:
    """While a reply is written, the hottest experts outside take the places of the coldest in VRAM slots."""

    every: int = leaf("count", 0)  # tokens of a reply; 0: every expert stays where the start put it
    swaps: int = leaf("count", 32, low=1)  # at most, each time
    decay: Number = leaf("share", 0.9)  # what earlier choices are worth of new ones, once each time


@dataclass
class Experts:
    """Where experts live: hottest first into VRAM slots, then RAM, the file keeps the rest."""

    mode: ExpertsMode = ExpertsMode.auto
    slots: AutoCount = leaf("count", "auto", auto=True)
    ram_budget: Bytes | None = leaf("bytes")  # for mode budget
    file_io: FileIo = FileIo.auto
    profile: str | None = None  # .npz with (layer, expert) pairs, hottest first; null: the pack's
    adapt: Adapt = field(default_factory=Adapt)
    profile_save: str | None = None  # where a run writes what its reply's tokens chose, added to the profile that it began with
    verify: bool = False  # check blob checksums on the way in, and write those of both tiers to identity.json


@dataclass
class Startup:
    """How experts get to their places. All but the strategy and `merge` apply to unbuffered reads."""

    strategy: Strategy = Strategy.auto
    merge: Bytes = leaf("bytes", 32 << 20, low=1)  # the largest read: blobs that touch in the file are read at once
    fill_batch: int = leaf("count", 64, low=1)  # blobs read together on their way to VRAM slots
    copy_batch: int = leaf("count", 32, low=1)  # the same, to RAM
    threads: int = leaf("count", 6, low=1)  # reads under way at once, each with a handle of its own
    depth: int = leaf("count", 2, low=1)  # fill batches in memory: the next is read while the present one is copied
    warm: bool = False  # after it, the kernel reads the file's experts into what RAM the plan leaves; Linux, experts.file_io=buffered


@dataclass
class Prefill:
    """In which order a prompt is read; all below `chunk` but `direct` and `warm` is layer-major order's."""

    order: Order = Order.auto
    chunk: AutoCount = leaf("count", "auto", auto=True, low=1)  # tokens of one mixer pass
    super_chunk: AutoCount = leaf("count", "auto", auto=True, words=("whole",), low=1)  # tokens of one pass over the layers
    residuals: Residuals = Residuals.auto  # where a super-chunk's residual streams lie between visits
    dense: Dense = Dense.auto  # layer-major on a card: dense weights stay in VRAM, or go up from RAM a layer at a time
    margin: Bytes = leaf("bytes", 0)  # of the memory that a super-chunk's rows lie in: left to experts at least
    prefetch: bool = True  # layer-major: a layer's file experts are asked for when its mixer starts, before the routing is known
    direct: AutoBool = leaf("bool", "auto", auto=True)  # read past the page cache what it does not hold, so that decode's stays
    direct_min: Number = leaf("share", 0.5)  # share of a blob in the page cache from which it is copied out of that
    warm: bool = False  # have the kernel read this and the next layer's file experts ahead; where direct is false


@dataclass
class Decode:
    sampler: Sampler = Sampler.greedy
    max_new_tokens: int = leaf("count", 256)
    stop_at_eos: bool = True
    draft: Draft = Draft.none  # guess what followed the last tokens where they stood before; a pass verifies it, the reply is the same
    draft_tokens: AutoCount = leaf("count", "auto", auto=True, low=1)  # of one guess, at most 7
    temperature: Number | None = leaf("number")  # the last four: sampler sample only
    top_k: int | None = leaf("count")
    top_p: Number | None = leaf("share")
    seed: int | None = leaf("count")


@dataclass
class Kv:
    format: KvFormat = KvFormat.fp32
    max_context: AutoCount = leaf("count", "auto", auto=True, low=1)
    resident_tokens: AutoCount = leaf("count", "auto", auto=True, low=1)  # whose cells lie in VRAM, the others' in RAM; auto: all


@dataclass
class Compute:
    arithmetic: Arithmetic = Arithmetic.f32
    threads: AutoCount = leaf("count", "auto", auto=True, low=1)
    device: Device = Device.auto  # auto: the card that is here, where the planned PC has one


@dataclass
class Message:
    role: str = "user"
    content: str = ""


@dataclass
class Workload:
    """The prompt. Of several sources the first stated wins: token_ids_file, tokens, text_file, messages, text."""

    token_ids_file: str | None = None  # .npy, or .npz with `ids`
    tokens: int | None = leaf("count")  # a synthetic prompt of that length
    seed: int | None = leaf("count")  # of the synthetic prompt
    text_file: str | None = None
    messages: list[Message] = field(default_factory=list)
    text: str | None = None
    template: Template = Template.auto


@dataclass
class Emulate:
    """How another PC is stood in for here."""

    ram: EmulateRam = EmulateRam.auto
    links: EmulateLinks = EmulateLinks.none


@dataclass
class Mode:
    name: ModeName = ModeName.run
    table: str | None = None  # of published figures, that mode simulate predicts cell by cell
    profiles: bool = False  # mode fit: a line for each shipped hardware profile


@dataclass
class Results:
    root: str = "results"  # each run makes a folder of its own below it
    folder: str | None = None  # this very folder, new or made ready for the run; null: a new one below root
    logits: Logits = Logits.none


@dataclass
class Config:
    hardware: Hardware = field(default_factory=Hardware)
    model: Model = field(default_factory=Model)
    experts: Experts = field(default_factory=Experts)
    startup: Startup = field(default_factory=Startup)
    prefill: Prefill = field(default_factory=Prefill)
    decode: Decode = field(default_factory=Decode)
    kv: Kv = field(default_factory=Kv)
    compute: Compute = field(default_factory=Compute)
    workload: Workload = field(default_factory=Workload)
    emulate: Emulate = field(default_factory=Emulate)
    mode: Mode = field(default_factory=Mode)
    bench: Bench = field(default_factory=Bench)
    verify: Verify = field(default_factory=Verify)
    result: str | None = None  # mode=reproduce: the folder to run again
    results: Results = field(default_factory=Results)
    sweep: Sweep = field(default_factory=Sweep)
    calibrate: Calibrate = field(default_factory=Calibrate)
    profile: Profile = field(default_factory=Profile)
