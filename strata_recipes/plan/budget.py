"""How many bytes each part of a run takes besides the experts: sums and sizes of a geometry. Knows no machine.

Legend: T tokens of a chunk, H hidden, S streams, I expert width, k experts a token, V vocabulary; activations are float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from strata_recipes.pack.index import Geometry, PackIndex
from strata_recipes.pack.layout import TOKEN_EMBEDDING
from strata_recipes.plan.allocator import GAP_BYTES, GAP_SHARE, SEGMENT_BYTES, SMALLEST_BYTES
from strata_recipes.plan.dense import layer_slab_bytes, slab_bytes, streaming_bytes
from strata_recipes.plan.plan import Share
from strata_recipes.plan.reply_rows import host_bytes, reply_bytes

F32_BYTES = 4
ROUNDED_BYTES = {"f32": 0, "bf16": 2, "f16": 2, "q8": 4}  # of an operand beside the float32 it was rounded from
GDN_CHUNK, GDN_GROUP = 64, 256  # tokens that the gated delta net solves together, and at once
ID_BYTES = 8
INT8_SCALE_EVERY, INT8_SCALE_BYTES = 64, 2  # one fp16 scale for 64 values
Q4_0_VALUES, Q4_0_BYTES = 32, 18
ROWS_AT_ONCE = 4  # on a card: chunks of rows that one launch takes to the experts, a token's choices counted each
SPANS_CROSSING = 2  # of a super-chunk whose streams lie in RAM: one comes up while another goes down
LIBRARY_BYTES = 32 << 20  # that cuBLAS takes of torch's memory, on the largest cards; beside a small model the reserve gives it
PRODUCTS = 14  # with dense weights in a layer of a reply, at most, each with two tables
SELECT_BYTES = 64 << 20  # of index scores that a card ranks at once, at most: attention then takes no more than a delta net
MATMUL_BYTES = 32 << 20  # of dense weights that are dequantized at once on a card, at most
HISTORY_BYTES = 4 + 2 * 8 + 4  # of a token that drafts are looked for in: its id; if all match: where, where a step back, and the id there
STAGE_SLOTS = 8  # blobs in flight between drive, RAM and VRAM: what hides a copy behind the one before it

DENSE, EMBEDDING = "dense weights", "token embedding"
KV = "keys and values"
AFTERWARDS, ON_CALL = "dense weights after the prompt", "dense weights on call"
BUFFERS, RING, STAGE = "prompt buffers", "stage ring", "stage buffers"
START = "start-up buffers"  # given back once the experts are in their places
RING_SLOTS = 16  # blobs on the card on their way: one half is computed from while the other is copied to
START_WINDOW_BYTES = 1 << 20  # of a reading thread, for reads that are not aligned
EXPERT_ROWS, MATMUL, CROSSING = "rows at the experts", "matmul workspace", "streams on their way"
REPLY, MISSED = "reply buffers", "missed experts"  # on a card: of a step, or of compiling its kernels; experts of the file read in place
REPLY_ENDS = "reply's inputs and results"  # in RAM, of each copy up and down
GAPS = "allocator's gaps"
KEPT_STREAMS, KEPT_ROWS = "super-chunk's residual streams", "super-chunk's expert rows"
DRAFTS, DRAFTED_ROWS, HISTORY = "state to take drafts back to", "drafted rows", "ids to draft from"
EXCHANGE = "exchange buffer"  # one blob on its way from a slot to RAM, where experts change places
SLOTS, BLOBS, ARENA, STAND_IN = "expert slots", "expert blobs", "slot arena", "stand-in for VRAM"


def total(parts: Iterable[Share]) -> int:
    return sum(part.num_bytes for part in parts)


def kv_row_bytes(values: int, kv_format: str) -> int:
    """Bytes of one head's key or value row."""
    match kv_format:
        case "fp32":
            return values * 4
        case "fp16":
            return values * 2
        case "int8":
            return values + -(-values // INT8_SCALE_EVERY) * INT8_SCALE_BYTES
        case "q4_0":
            return -(-values // Q4_0_VALUES) * Q4_0_BYTES
    raise ValueError(f"kv format {kv_format!r} is not one of fp32, fp16, int8, q4_0")


def kv_cell_bytes(g: Geometry, kv_format: str) -> int:
    """Keys and values of one token in one attention layer."""
    return 2 * g.kv_heads * kv_row_bytes(g.head_dim, kv_format)


def state_parts(g: Geometry, kv_format: str, max_context: int) -> tuple[Share, ...]:
    """What a sequence of up to `max_context` tokens keeps, exact to the byte; all but keys, values and ids is float32."""
    attention = len(g.attention_layers)
    linear, ngram = g.num_layers - attention, len(g.ngram_layers)
    blocks = -(-max_context // g.index_block)  # one pooled key a block
    mixed = (2 * g.gdn_key_heads + g.gdn_value_heads) * g.gdn_head_dim
    taps = (g.ngram_conv - 1) * g.ngram_size  # the n-gram convolution is dilated by ngram_size
    return (
        Share(KV, attention * max_context * kv_cell_bytes(g, kv_format)),
        # the pooled keys, and the raw keys of the block that is not whole yet
        Share("index keys", attention * (blocks + g.index_block) * g.indexer_dim * F32_BYTES),
        Share("recurrent state", linear * g.gdn_value_heads * g.gdn_head_dim**2 * F32_BYTES),
        Share("n-gram history", ngram * (g.ngram_size - 1) * ID_BYTES),
        Share("convolution state", (linear * (g.gdn_conv - 1) * mixed + ngram * taps * g.streams * g.hidden) * F32_BYTES),
    )


def far_kv_bytes(g: Geometry, kv_format: str, max_context: int, resident: int | None) -> int:
    """Keys and values of the tokens after the `resident` first ones; None: there are none."""
    far = 0 if resident is None else max(0, max_context - resident)
    return len(g.attention_layers) * far * kv_cell_bytes(g, kv_format)


def state_bytes(g: Geometry, kv_format: str, max_context: int) -> int:
    """The one figure for a context's memory: the plan, its refusals and the allocation all use it."""
    return total(state_parts(g, kv_format, max_context))


def draft_parts(g: Geometry, draft_tokens: int) -> tuple[Share, ...]:
    """Where drafts are on: what brings the state back to a row of a pass, exact to the byte; and what a pass's rows keep beside the one
    at work."""
    if not draft_tokens:
        return ()
    state, rows = {part.name: part.num_bytes for part in state_parts(g, "fp32", 0)}, draft_tokens + 1
    recurrent = state["recurrent state"]  # once: what rows wrote to it is written again
    overwritten = sum(state.values()) - state["keys and values"] - recurrent  # of index keys those of the block that is not whole yet
    value, linear = g.gdn_value_heads * g.gdn_head_dim, g.num_layers - len(g.attention_layers)
    written = 2 * g.gdn_key_heads * g.gdn_head_dim + 2 * value + 2 * g.gdn_value_heads  # q|k|v, keys by value head, decay and beta
    between = rows * (linear * written + g.vocab) * F32_BYTES + total(kept_parts(g, rows))
    return Share(DRAFTS, recurrent + draft_tokens * overwritten), Share(DRAFTED_ROWS, between)


def _table_bytes(g: Geometry, rows: int) -> int:
    """Small things of replies on a card: experts' addresses and places, and of each number of rows the tables of its products and a pool of
    memory for each graph that adds n-grams."""
    products, pools = (PRODUCTS * g.num_layers + 1) * 2 * SMALLEST_BYTES, len(g.ngram_layers) * SEGMENT_BYTES
    return g.total_experts * (ID_BYTES + 1) + rows * (products + pools)


def warm_up_bytes(pack: PackIndex, kv_format: str, draft_tokens: int) -> int:
    """Of a card: what a reply's kernels are compiled on at a first start (engine/warm_up.py), which goes on while a prompt is read: a state
    of one layer a kind, two blobs, every expert's address and place, and a reply's buffers for a short context."""
    g, rows = pack.geometry, draft_tokens + 1
    context = max(rows, g.index_block)
    state = state_bytes(replace(g, num_layers=2, attention_interval=2), kv_format, context)
    return state + 2 * max_stride(pack) + g.total_experts * (ID_BYTES + 1) + reply_bytes(g, rows, context)


def buffer_parts(g: Geometry, rows: int, context: int, logits_rows: int, device: str = "cpu") -> tuple[Share, ...]:
    """Working memory of one pass over `rows` tokens: what lives at once in the worst layer, buffers reused by all layers."""
    wide = g.streams * g.hidden
    value = g.gdn_value_heads * g.gdn_head_dim
    # mixed q|k|v before and after the convolution, gate, output
    # then q, k, v by value head, the right side and its solution, what is read, kept and returned; three square systems a head
    solved = (10 * value + 3 * g.gdn_value_heads * GDN_CHUNK) * min(1.0, GDN_GROUP / max(1, rows))
    delta_net = 2 * (2 * g.gdn_key_heads * g.gdn_head_dim + value) + 3 * value + solved
    # keys, queries and gated values by stream, normed or not; the convolution's input, sum and output
    ngram = 6 * wide + (g.ngram_size - 1) * g.ngram_heads * g.ngram_width if g.ngram_layers else 0
    per_row = (
        ("residual streams", (3 if g.ngram_layers else 2) * wide + g.stream_rank),  # before and after a half, and before the n-grams
        ("expert inputs and sums", 2 * g.hidden + 2 * g.top_k),  # x, acc, ids and weights
        ("mixer activations", max(_attention_values(g, rows, context, device), delta_net, ngram, 3 * wide)),  # or a mix of the streams
    )
    parts = [Share(name, int(rows * values) * F32_BYTES) for name, values in per_row]
    state = g.gdn_value_heads * g.gdn_head_dim**2 * F32_BYTES  # the new one beside the old
    return (*parts, Share("recurrent state in passing", state), Share("logits", logits_rows * g.vocab * F32_BYTES))


def _attention_values(g: Geometry, rows: int, context: int, device: str) -> float:
    """Of one row: query, gate and output; keys and values; indexer queries; then what it selects with and reads."""
    query, blocks = g.query_heads * g.head_dim, -(-context // g.index_block)
    kept = 3 * query + 2 * g.kv_heads * g.head_dim + g.indexer_heads * g.indexer_dim
    if device == "cpu":  # one score a block; scores of the selected tokens
        return kept + blocks + g.query_heads * min(context, g.index_budget + g.index_block)
    scored = min((g.indexer_heads + 2) * blocks, SELECT_BYTES / F32_BYTES / rows)  # keys are read where they lie
    return kept + query + scored + g.index_budget // g.index_block


def expert_row_bytes(g: Geometry) -> int:
    """One row on its way through an expert on a card: what is between gate and down, and the result."""
    return (g.expert_width + g.hidden) * F32_BYTES


def _expert_rows(g: Geometry, demand: Demand) -> Share:
    if demand.device == "cpu":  # all rows may choose the same expert, and each expert runs alone
        return Share(EXPERT_ROWS, max(demand.rows, demand.draft_tokens + 1) * (2 * g.hidden + 2 * g.expert_width) * F32_BYTES)
    return Share(EXPERT_ROWS, demand.rows * min(ROWS_AT_ONCE, g.top_k) * expert_row_bytes(g))


def kept_parts(g: Geometry, tokens: int, rounded_bytes: int = 0) -> tuple[Share, Share]:
    """What a super-chunk keeps between its visits: residual streams; and what experts read and write, all rows at once.

    `rounded_bytes`: of a value of x in the copy that a card rounds to the arithmetic.
    """
    wide = g.streams * g.hidden
    choices = g.top_k * (8 * ID_BYTES + 2 * F32_BYTES)  # ids and weights; both sorted, their order, its sort's own, places
    rows = (2 * g.hidden + g.streams) * F32_BYTES + g.hidden * rounded_bytes + choices  # x, acc, inject
    return Share(KEPT_STREAMS, tokens * wide * F32_BYTES), Share(KEPT_ROWS, tokens * rows)


@dataclass(frozen=True)
class Demand:
    """What a run asks of memory besides experts."""

    device: str  # "cuda" or "cpu"
    arithmetic: str
    kv_format: str
    context: int
    rows: int  # tokens of the largest mixer pass
    logits_rows: int
    start: StartDemand | None = None  # None: the start is mapped
    kept_tokens: int = 0  # of a super-chunk; 0 in chunked order
    residuals: str = "vram"  # or host: where the streams of kept tokens lie, beside a GPU
    draft_tokens: int = 0  # that a pass of decode verifies at most
    resident: int | None = None  # tokens whose keys and values lie on the card; None: all
    streamed: bool = False  # dense weights go up layer by layer while a prompt is read
    ahead_bytes: int = 0  # most RAM for a layer's experts that are read ahead; 0: only what is in flight
    exchange: bool = False  # experts change places between VRAM and RAM


@dataclass(frozen=True)
class StartDemand:
    """What an unbuffered start keeps in memory while it runs."""

    threads: int
    fill_blobs: int  # in stage buffers at once; 0 where there are no slots to fill


@dataclass(frozen=True)
class Fixed:
    """The parts of both memories that are there whatever the experts do."""

    vram: tuple[Share, ...]
    ram: tuple[Share, ...]


def fixed_parts(pack: PackIndex, demand: Demand) -> Fixed:
    """On a GPU dense weights, state and buffers take VRAM; without one all of it takes RAM."""
    g = pack.geometry
    copied = 0 if demand.device == "cpu" else ROUNDED_BYTES[demand.arithmetic]
    streams, rows = kept_parts(g, demand.kept_tokens, copied)
    state = state_parts(g, demand.kv_format, demand.context)
    buffers = Share(BUFFERS, total(buffer_parts(g, demand.rows, demand.context, demand.logits_rows, demand.device)))
    embedding = Share(EMBEDDING, embedding_bytes(pack))
    drafts, history = draft_parts(g, demand.draft_tokens), Share(HISTORY, demand.context * HISTORY_BYTES if demand.draft_tokens else 0)
    at_experts = _expert_rows(g, demand)
    exchange = Share(EXCHANGE, pack.max_blob_bytes if demand.exchange else 0)
    if demand.device == "cpu":
        dense = Share(DENSE, dense_values(pack) * (2 if demand.arithmetic in ("bf16", "f16") else F32_BYTES))
        stage = Share(STAGE, _stage_bytes(pack, demand, 2))
        kept = _some(streams, rows, *drafts, history, exchange)
        return Fixed((), (embedding, dense, *state, buffers, at_experts, *kept, stage, *start_parts(pack, demand.start)))
    ring = Share(RING, RING_SLOTS * pack.max_blob_bytes)
    there, here = ((), (streams,)) if demand.residuals == "host" else ((streams,), ())
    missed = Share(MISSED, (demand.draft_tokens + 1) * g.top_k * max_stride(pack))
    gathered = missed.num_bytes if missed.num_bytes > ring.num_bytes else 0  # on the card, where a reply gathers in the ring if it can
    compiled_on = warm_up_bytes(pack, demand.kv_format, demand.draft_tokens)
    reply = Share(REPLY, max(reply_bytes(g, demand.draft_tokens + 1, demand.context) + gathered, compiled_on))
    ends = Share(REPLY_ENDS, host_bytes(g, demand.draft_tokens + 1))
    stage = Share(STAGE, _stage_bytes(pack, demand, STAGE_SLOTS))
    on_call = Share(ON_CALL, layer_slab_bytes(pack) if demand.streamed else 0)
    far = far_kv_bytes(g, demand.kv_format, demand.context, demand.resident)
    near = tuple(Share(part.name, part.num_bytes - far) if part.name == KV else part for part in state)
    of_ram = (embedding, *_some(on_call, Share(KV, far), *here, history, exchange), stage, missed, ends, *start_parts(pack, demand.start))
    small = pack.dense_bytes // 16
    widened = Share(MATMUL, matmul_bytes(pack) + min(LIBRARY_BYTES, small))
    gaps = Share(GAPS, min(GAP_BYTES + buffers.num_bytes // GAP_SHARE + _table_bytes(g, demand.draft_tokens + 1), small))
    crossing = SPANS_CROSSING * demand.rows * g.streams * g.hidden * F32_BYTES if demand.kept_tokens and not there else 0
    of_prompt = (buffers, *_some(*there, rows, Share(CROSSING, crossing)))
    weights = _dense_parts(pack, demand, total(of_prompt))
    return Fixed((*weights, widened, *near, at_experts, *of_prompt, *_some(*drafts), reply, ring, gaps), of_ram)


def _dense_parts(pack: PackIndex, demand: Demand, prompt_bytes: int) -> tuple[Share, ...]:
    """All of it; or, streamed, what a prompt has of it, and what a reply needs beyond that and the memory that a prompt gives back.

    So the parts sum to the larger of the two: a prompt with two layers' weights and all that it keeps, a reply with all weights.
    """
    if not demand.streamed:
        return (Share(DENSE, slab_bytes(pack)),)
    reply_bytes = total(buffer_parts(pack.geometry, 1, demand.context, 1, demand.device))
    beyond = slab_bytes(pack) - streaming_bytes(pack) - max(0, prompt_bytes - reply_bytes)
    return (Share(DENSE, streaming_bytes(pack)), Share(AFTERWARDS, max(0, beyond)))


def start_parts(pack: PackIndex, start: StartDemand | None) -> tuple[Share, ...]:
    """Stage buffers of the fill, and a window a thread."""
    if start is None:
        return ()
    return (Share(START, start.fill_blobs * max_stride(pack) + start.threads * START_WINDOW_BYTES),)


def _stage_bytes(pack: PackIndex, demand: Demand, in_flight: int) -> int:
    """Buffers between drive and arithmetic: those in flight, or a whole layer's where it is read while its mixer runs."""
    ahead = min(pack.geometry.num_experts, demand.ahead_bytes // max_stride(pack))
    return max(in_flight, ahead) * max_stride(pack)


def _some(*parts: Share) -> tuple[Share, ...]:
    return tuple(part for part in parts if part.num_bytes)


def embedding_bytes(pack: PackIndex) -> int:
    """The token embedding, as stored: rows are looked up, so it stays in RAM."""
    return sum(t.num_bytes for t in pack.dense if t.name == TOKEN_EMBEDDING)


def dense_values(pack: PackIndex) -> int:
    """Weights of the dense tensors without the token embedding: CPU arithmetic keeps them expanded."""
    found = 0
    for tensor in pack.dense:
        if tensor.name != TOKEN_EMBEDDING:
            found += math.prod(tensor.shape)
    return found


def matmul_bytes(pack: PackIndex) -> int:
    """The largest dense matrix as float32, or as much of it as a card widens at once."""
    largest = max(math.prod(tensor.shape) for tensor in pack.dense if tensor.name != TOKEN_EMBEDDING)
    return min(MATMUL_BYTES, largest * F32_BYTES)


def max_stride(pack: PackIndex) -> int:
    return max(layer.stride for layer in pack.layers)
