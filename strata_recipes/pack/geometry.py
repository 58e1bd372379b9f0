"""Whether a geometry makes sense at all: every sum that the engine relies on. Opens nothing."""

from __future__ import annotations

import dataclasses
import math

from strata_recipes.errors import PackError
from strata_recipes.pack.index import Geometry

MAX_LAYERS = 4096  # a bound against a damaged count, far above any model
_LARGEST = 1 << 48


def check_geometry(g: Geometry, where: str, hashed: bool = True) -> Geometry:
    """The geometry itself; PackError names every field that cannot be. A declared model states no n-gram hash."""
    faults = _bounds(g) or _sums(g) or (_ngram(g) + (_hash(g) if hashed else []) if g.ngram_layers else [])
    if faults:
        raise PackError(f"{where} states a geometry that cannot be: {'; '.join(faults)}")
    return g


def _bounds(g: Geometry) -> list[str]:
    faults = []
    for field in dataclasses.fields(g):
        value = getattr(g, field.name)
        if field.name.startswith("ngram_") or field.name in ("rope_sections", "output_gate"):
            continue
        if not math.isfinite(value) or not 0 < value < _LARGEST:
            faults.append(f"{field.name} is {value}")
    if g.num_layers > MAX_LAYERS:
        faults.append(f"num_layers is {g.num_layers:,}, more than {MAX_LAYERS:,}")
    if g.output_gate not in ("sigmoid", "silu"):
        faults.append(f"output_gate is {g.output_gate!r}, not sigmoid or silu")
    return faults


def _sums(g: Geometry) -> list[str]:
    rules = [
        (g.top_k <= g.num_experts, f"top_k {g.top_k} of {g.num_experts} experts"),
        (g.query_heads % g.kv_heads == 0, f"{g.query_heads} query heads over {g.kv_heads} kv heads"),
        (g.gdn_value_heads % g.gdn_key_heads == 0, f"{g.gdn_value_heads} GDN value heads over {g.gdn_key_heads} key heads"),
        (g.rotary_dim % 2 == 0 and g.rotary_dim <= min(g.head_dim, g.indexer_dim), f"rotary_dim {g.rotary_dim}, head_dim {g.head_dim}"),
        (2 * sum(g.rope_sections) == g.rotary_dim, f"rope_sections {list(g.rope_sections)} for a rotary_dim of {g.rotary_dim}"),
        (all(s >= 0 for s in g.rope_sections), f"rope_sections {list(g.rope_sections)}"),
        (g.index_budget % g.index_block == 0, f"index_budget {g.index_budget} in blocks of {g.index_block}"),
        (g.streams > 1, f"{g.streams} residual stream"),
    ]
    return [text for good, text in rules if not good]


def _ngram(g: Geometry) -> list[str]:
    rules = [
        (2 <= g.ngram_size <= 64 and 0 < g.ngram_heads <= 4096, f"ngram_size {g.ngram_size}, ngram_heads {g.ngram_heads}"),
        (0 < g.ngram_width < _LARGEST and 0 < g.ngram_conv < _LARGEST, f"ngram_width {g.ngram_width}, ngram_conv {g.ngram_conv}"),
        (0 < g.ngram_rows < _LARGEST, f"ngram_rows {g.ngram_rows}"),
        (0 <= g.ngram_eos < g.vocab, f"ngram_eos {g.ngram_eos} in a vocabulary of {g.vocab}"),
    ]
    return _ngram_layers(g) + [text for good, text in rules if not good]


def _ngram_layers(g: Geometry) -> list[str]:
    wrong = [layer for layer in g.ngram_layers if not 0 <= layer < g.num_layers or g.is_attention(layer)]
    free = [str(layer) for layer in range(g.num_layers) if not g.is_attention(layer)]
    left = ", ".join(free[:3]) + (", .." if len(free) > 3 else "") or "none"
    remedy = "name some of these, or none" if free else "raise attention_interval, or state ngram_layers=[]"
    left_by = f"of {g.num_layers:,} layers attention_interval {g.attention_interval} leaves {left} without attention"
    return [f"ngram_layers {wrong}: {left_by}: {remedy}"] if wrong else []


def _hash(g: Geometry) -> list[str]:
    heads = (g.ngram_size - 1) * g.ngram_heads
    rules = [
        (len(g.ngram_multipliers) == g.ngram_size, f"{len(g.ngram_multipliers)} ngram_multipliers for ngram_size {g.ngram_size}"),
        (all(0 < m < 1 << 63 for m in g.ngram_multipliers), "an ngram_multiplier outside 1 .. 2**63 - 1"),
        (len(g.ngram_vocab_sizes) == len(g.ngram_offsets) == heads, f"{len(g.ngram_vocab_sizes)} ngram_vocab_sizes for {heads} heads"),
        (_heads_fit(g), f"n-gram heads reach past the table's {g.ngram_rows:,} rows"),
    ]
    return [text for good, text in rules if not good]


def _heads_fit(g: Geometry) -> bool:
    spans = zip(g.ngram_offsets, g.ngram_vocab_sizes, strict=False)
    return all(start >= 0 and size > 0 and start + size <= g.ngram_rows for start, size in spans)
