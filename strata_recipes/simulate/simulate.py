"""Times of a plan on a machine: bytes over rates and operations over rates, summed without overlap. Reads no clock.

The start finds what the machine's facts say is cached; then the page cache keeps the hottest experts of the file tier that it has room for.
"""

from __future__ import annotations

from dataclasses import dataclass

from strata_recipes.machine.facts import Machine
from strata_recipes.pack.index import Geometry, PackIndex
from strata_recipes.plan.budget import F32_BYTES, dense_values, embedding_bytes, kv_cell_bytes
from strata_recipes.plan.plan import Prediction
from strata_recipes.simulate.links import Links, links
from strata_recipes.simulate.routing import Routing, Weights, hottest, split
from strata_recipes.simulate.startup import StartLoad, startup_s

SAMPLER_OPS = 4  # a logit: compare, scale, exponential, sum


@dataclass(frozen=True)
class Load:
    """What is timed: experts by tier, the start-up copies, the prompt, the tokens after it."""

    vram_slots: int
    ram_blobs: int
    file_blobs: int
    start: StartLoad
    file_io: str
    cache_bytes: int  # of page cache for the file tier
    ranked: bool  # the order is by heat, not by expert id
    skew: float
    prompt_tokens: int
    chunk: int
    new_tokens: int
    kv_format: str
    super_chunk: int | None = None  # tokens of a layer-major pass; None: chunked order
    streams_cross: bool = False  # a super-chunk's residual streams lie across the link, in RAM
    prompt_io: str | None = None  # how the prompt reads the file; None: as decode


@dataclass(frozen=True)
class Timed:
    """The prediction and the sum that candidates are compared by."""

    prediction: Prediction
    total_s: float
    vram_hit_share: float  # of a token's choices


def predict(pack: PackIndex, machine: Machine, load: Load) -> Timed:
    """Start-up, prompt and decode of one load."""
    tiers = _Tiers(pack, load)
    rates, g = links(machine), pack.geometry
    embed_s = pack.geometry.hidden / machine.cpu.flops  # a row of the embedding is looked up and expanded on the CPU
    ready = pack.dense_bytes * rates.dense + startup_s(machine, load.start)
    prefill = _prefill(pack, rates, tiers, load) + load.prompt_tokens * embed_s
    decode = _decode(pack, rates, tiers, load) + max(load.new_tokens, 1) * (embed_s + SAMPLER_OPS * g.vocab / machine.cpu.flops)
    prediction = Prediction(
        ready_s=_round(ready),
        prefill_s=_round(prefill),
        prefill_tokens_per_s=_round(load.prompt_tokens / prefill),
        decode_tokens_per_s=_round(max(load.new_tokens, 1) / decode),
    )
    total = ready + prefill + (decode if load.new_tokens else 0.0)
    return Timed(prediction, total, tiers.routing.choices(tiers.vram) / tiers.routing.top_k)


class _Tiers:
    """A layer's experts by tier, and the part of the file tier that the page cache keeps."""

    def __init__(self, pack: PackIndex, load: Load) -> None:
        g = pack.geometry
        shares = tuple(count / g.total_experts for count in (load.vram_slots, load.ram_blobs, load.file_blobs))
        self.routing = Routing(g.num_experts, g.top_k, load.skew)
        self.vram, self.ram, self.file = split(g.num_experts, shares, load.ranked)
        kept = load.cache_bytes / pack.experts_file_bytes * g.num_experts
        self.cached: Weights = hottest(self.file, 0.0, kept)
        self.blob_bytes = pack.experts_bytes / g.num_experts  # of one expert id in every layer
        self.stride_bytes = pack.experts_file_bytes / g.num_experts

    def file_s(self, rates: Links, read: float, kept: float, seen: float) -> float:
        """Seconds for `read` file experts of which `kept` come from the page cache once they were seen; `seen` are new."""
        again = max(0.0, read - seen)
        cached = again * (kept / read if read else 0.0)
        return ((read - cached) * rates.cold + cached * rates.cached) * self.stride_bytes

    def read_s(self, rates: Links, file_io: str, vram: float, ram: float, file: tuple[float, float, float]) -> float:
        """Seconds to bring experts of every tier to the arithmetic: counts are expert ids, each in all layers."""
        from_file = file[0] * self.stride_bytes * rates.direct if file_io == "direct" else self.file_s(rates, *file)
        return (vram * rates.vram + ram * rates.ram) * self.blob_bytes + from_file


def _prefill(pack: PackIndex, rates: Links, tiers: _Tiers, load: Load) -> float:
    """Each chunk reads the dense weights, each pass over the layers every expert it touches: a chunk is a pass, or a super-chunk.

    Full passes are alike, so they are counted, not walked.
    """
    step = load.super_chunk or load.chunk
    full, rest = divmod(load.prompt_tokens, step)
    spans = [(full, step), (1 if rest else 0, rest)]
    routing = tiers.routing

    def touched(held: Weights) -> float:
        return sum(count * routing.touched(held, tokens) for count, tokens in spans)

    seen = routing.touched(tiers.file, load.prompt_tokens)
    file = (touched(tiers.file), touched(tiers.cached), seen)
    read = tiers.read_s(rates, load.prompt_io or load.file_io, touched(tiers.vram), touched(tiers.ram), file)
    dense = -(-load.prompt_tokens // load.chunk) * dense_bytes(pack) * rates.memory
    ops = load.prompt_tokens * token_flops(pack) + head_flops(pack.geometry)  # only the last row gives logits
    return read + dense + _streams(pack.geometry, rates, load) + ops * rates.flop


def _streams(g: Geometry, rates: Links, load: Load) -> float:
    """A super-chunk's residual streams are read and written once a layer; a link carries both ways at once."""
    if load.super_chunk is None:
        return 0.0
    num_bytes = load.prompt_tokens * g.num_layers * g.streams * g.hidden * F32_BYTES
    return num_bytes * (rates.up if load.streams_cross else 2 * rates.memory)


def _decode(pack: PackIndex, rates: Links, tiers: _Tiers, load: Load) -> float:
    """Each token reads the dense weights, what attention selects, and its experts."""
    tokens, routing, g = max(load.new_tokens, 1), tiers.routing, pack.geometry
    before = 0 if load.prompt_io == "direct" else load.prompt_tokens  # a prompt read past the cache leaves it as it was
    seen = routing.touched(tiers.file, before + tokens) - routing.touched(tiers.file, before)
    vram, ram, file, cached = (tokens * routing.choices(held) for held in (tiers.vram, tiers.ram, tiers.file, tiers.cached))
    read = tiers.read_s(rates, load.file_io, vram, ram, (file, cached, seen))
    context = load.prompt_tokens + tokens // 2
    each = (dense_bytes(pack) + attention_bytes(g, load.kv_format, context)) * rates.memory
    return read + tokens * (each + (token_flops(pack) + head_flops(g)) * rates.flop)


def dense_bytes(pack: PackIndex) -> int:
    """Dense weights that a pass reads: all but the token embedding."""
    return pack.dense_bytes - embedding_bytes(pack)


def attention_bytes(g: Geometry, kv_format: str, context: int) -> int:
    """What one token's attention reads: every pooled index key, and the keys and values of the selected tokens."""
    index = context // g.index_block * g.indexer_dim * 4
    return len(g.attention_layers) * (index + min(context, g.index_budget) * kv_cell_bytes(g, kv_format))


def token_flops(pack: PackIndex) -> float:
    """Operations a token up to the output head: two a weight, of the dense weights and the chosen experts."""
    g = pack.geometry
    chosen = g.num_layers * g.top_k * 3 * g.hidden * g.expert_width
    return 2.0 * (dense_values(pack) + chosen) - head_flops(g)


def head_flops(g: Geometry) -> float:
    """Operations of one row of logits."""
    return 2.0 * g.vocab * g.hidden


def _round(value: float) -> float:
    """Nine digits: the last bits of exp and erfc differ between C libraries, and a plan must not."""
    return float(f"{value:.9g}")
