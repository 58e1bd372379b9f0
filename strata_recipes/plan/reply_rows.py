"""The buffers of a reply on a card: which values a few tokens' way through the layers leaves between two kernels. Sums and shapes only.

They are made once and stay where they are, as a captured graph holds their addresses. R rows go through at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from strata_recipes.pack.index import Geometry

ALIGNMENT = 256
KEYS_AT_ONCE = 32  # of a row's keys that one block of threads reads
Shapes = dict[str, tuple[str, tuple[int, ...]]]  # by name: numpy dtype, shape
BOTH_SIDES = ("embedding", "position", "logits", "nans", "routed")  # and the n-grams' rows: what goes up for a pass, or comes down

MOST_CHOSEN, MOST_HEADS, MOST_DIM, MOST_TAPS, MOST_STREAMS = 32, 16, 256, 8, 8  # that a reply's kernels are built for


def reply_faults(g: Geometry) -> Iterator[str]:
    """What no reply's kernels on a card can do. A prompt's could: it has other ways there."""
    limits = [("experts a token", g.top_k, MOST_CHOSEN, 1), ("streams", g.streams, MOST_STREAMS, 1)]
    if g.attention_layers:
        limits += [("values a head", g.head_dim, MOST_DIM, 8), ("query heads a kv head", g.query_heads // g.kv_heads, MOST_HEADS, 1)]
        limits += [("values an index head", g.indexer_dim, MOST_DIM, 8), ("index heads", g.indexer_heads, MOST_HEADS, 1)]
    if len(g.attention_layers) < g.num_layers:
        limits += [("values a head of a delta net", g.gdn_head_dim, MOST_DIM, 4), ("taps of a delta net", g.gdn_conv, MOST_TAPS, 1)]
    for what, size, most, whole in limits:
        if size > most or size % whole:
            wanted = f"at most {most}" if whole == 1 else f"a multiple of {whole} to {most}"
            yield f"the model has {size} {what}, a card's kernels for replies take {wanted}: use compute.device=cpu"


def reply_shapes(g: Geometry, rows: int, context: int) -> Shapes:
    """Every buffer."""
    wide, chosen = g.streams * g.hidden, rows * g.top_k
    mixed = (2 * g.gdn_key_heads + g.gdn_value_heads) * g.gdn_head_dim
    value, query = g.gdn_value_heads * g.gdn_head_dim, g.query_heads * g.head_dim
    selected, blocks = g.index_budget // g.index_block, max(1, -(-context // g.index_block))
    tables = {f"ngram_{layer}": (rows, (g.ngram_size - 1) * g.ngram_heads * g.ngram_width) for layer in g.ngram_layers}
    tables |= {"ngram_products": (rows, wide + g.hidden)} if tables else {}
    widest = max(wide, value, query, *(width for _, width in tables.values()))  # of rows that a product rounds to 8 bits
    floats: dict[str, tuple[int, ...]] = {
        "embedding": (rows, g.hidden), **tables, "streams": (rows, wide), "normed": (rows, wide),
        "act": (rows, g.stream_rank), "strengths": (rows, g.streams), "no_strengths": (rows, 0),
        "x": (rows, g.hidden), "block": (rows, g.hidden),
        "mixed": (rows, mixed + value + 2 * g.gdn_value_heads), "convolved": (rows, mixed),
        "read": (rows, value), "gated": (rows, value),
        "heads": (rows, 2 * query + 2 * g.kv_heads * g.head_dim), "query": (rows, g.query_heads, g.head_dim), "attended": (rows, query),
        "index": (rows, (1 + g.indexer_heads) * g.indexer_dim), "index_queries": (rows, g.indexer_heads, g.indexer_dim),
        "index_scores": (rows, blocks), "partial": (partial_values(g, rows, context),),
        "scores": (rows, g.num_experts), "weights": (rows, g.top_k), "gate_up": (chosen, 2 * g.expert_width),
        "gate": (chosen, 1, g.expert_width), "other": (chosen, 1, g.expert_width), "hidden": (chosen, g.expert_width),
        "y": (chosen, 1, g.hidden),
        "shared_gate_up": (rows, 2 * g.shared_width), "shared_hidden": (rows, g.shared_width), "shared": (rows, g.hidden),
        "shared_gate": (rows, 1), "logits": (rows, g.vocab),
        "scales": (max(rows * (-(-widest // 32)), chosen * (-(-g.expert_width // 32))),),
    }  # fmt: skip
    codes = max(rows * widest, chosen * g.expert_width)
    side = rows * max(g.hidden, g.shared_width)  # of the shared expert, which runs beside the others
    floats["side_scales"] = (-(-side // 32) + rows,)
    whole = {
        "position": ("int64", (1,)), "addresses": ("int64", (chosen,)), "nans": ("int32", (1,)),
        "routed": ("int32", (g.num_layers, rows, g.top_k)), "chosen": ("int32", (rows, selected)),
        "codes": ("int8", (codes,)), "side_codes": ("int8", (side,)),
    }  # fmt: skip
    return {name: ("float32", shape) for name, shape in floats.items()} | whole


def partial_values(g: Geometry, rows: int, context: int) -> int:
    """Of attention that is read in ranges of keys: each range's sum, largest score and weight."""
    ranges = -(-min(context, g.index_budget + g.index_block - 1) // KEYS_AT_ONCE)
    return rows * g.query_heads * ranges * (g.head_dim + 2)


def reply_bytes(g: Geometry, rows: int, context: int) -> int:
    """All of them, one after the other."""
    return sum(_rounded(num_bytes(*shape)) for shape in reply_shapes(g, rows, context).values())


def host_shapes(g: Geometry, rows: int) -> Shapes:
    """The host's ends of the copies up and down."""
    names = (*BOTH_SIDES, *(f"ngram_{layer}" for layer in g.ngram_layers))
    return {name: shape for name, shape in reply_shapes(g, rows, 1).items() if name in names}


def host_bytes(g: Geometry, rows: int) -> int:
    """All of them in one piece of page-locked memory, which torch takes in powers of two; passes of fewer rows lie in the same."""
    return 1 << (sum(_rounded(num_bytes(*shape)) for shape in host_shapes(g, rows).values()) - 1).bit_length()


def num_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * {"float32": 4, "int32": 4, "int64": 8, "int8": 1}[dtype]


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
