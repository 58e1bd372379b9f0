"""The geometry of a qwen4_exp model from a Hugging Face config.json. Reads no tensor."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from strata_recipes.errors import PackError
from strata_recipes.pack.geometry import check_geometry
from strata_recipes.pack.index import Geometry
from strata_recipes.pack.ngram_hash import hash_multipliers, table_offsets, table_sizes

MODEL_TYPES = ("qwen4_exp", "qwen4_exp_text")
_ATTENTION = ("full_attention", "indexed_attention")


class Fields:
    """Typed look-ups in the text config; PackError names file and key."""

    def __init__(self, config: dict[str, Any], path: Path) -> None:
        self.path = path
        nested = config.get("text_config")
        self.text: dict[str, Any] = nested if isinstance(nested, dict) else config

    def get(self, key: str, default: Any = None) -> Any:
        value = self.text.get(key)
        return default if value is None else value

    def count(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if value is None:
            raise PackError(f"{self.path} lacks {key!r}, which the geometry needs")
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise PackError(f"{self.path}: {key!r} is {value!r}, a count is wanted")
        return value

    def number(self, value: Any, key: str) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or abs(value) > 1e30:
            raise PackError(f"{self.path}: {key!r} is {value!r}, a number is wanted")
        return float(value)

    def counts(self, value: Any, key: str) -> tuple[int, ...]:
        if not isinstance(value, list) or not all(isinstance(v, int) and not isinstance(v, bool) for v in value):
            raise PackError(f"{self.path}: {key!r} is {value!r}, a list of whole numbers is wanted")
        return tuple(value)


def check_model_type(config: dict[str, Any], path: Path) -> None:
    """PackError with both names where the folder holds another kind of model."""
    if config.get("model_type") not in MODEL_TYPES:
        raise PackError(f"{path} states model_type {config.get('model_type')!r}, this build runs {MODEL_TYPES[0]!r}")


def hf_geometry(config: dict[str, Any], path: Path, ngram_rows: int, buffers: dict[str, tuple[int, ...]]) -> Geometry:
    """The geometry. `buffers`: layer_multipliers, ngram_heads_offsets, ngram_heads_vocab_sizes where the checkpoint holds them."""
    f = Fields(config, path)
    _check_variant(f)
    head_dim, value_dim = f.count("linear_key_head_dim"), f.count("linear_value_head_dim")
    if head_dim != value_dim:
        raise PackError(f"{path}: linear attention keys of {head_dim} and values of {value_dim} a head, this build wants them equal")
    geometry = Geometry(
        num_layers=f.count("num_hidden_layers"),
        hidden=f.count("hidden_size"),
        vocab=f.count("vocab_size"),
        context_length=f.count("max_position_embeddings"),
        norm_eps=f.number(f.get("rms_norm_eps", 1e-6), "rms_norm_eps"),
        attention_interval=_interval(f),
        gdn_key_heads=f.count("linear_num_key_heads"),
        gdn_value_heads=f.count("linear_num_value_heads"),
        gdn_head_dim=head_dim,
        gdn_conv=f.count("linear_conv_kernel_dim"),
        query_heads=f.count("num_attention_heads"),
        kv_heads=f.count("num_key_value_heads"),
        head_dim=f.count("head_dim"),
        **_rope(f),
        indexer_heads=f.count("indexer_n_heads"),
        indexer_dim=f.count("indexer_head_dim"),
        index_block=f.count("indexer_compress_ratio"),
        index_budget=f.count("indexer_budget"),
        streams=f.count("hc_count"),
        stream_rank=f.count("hc_lowrank"),
        num_experts=f.count("num_experts"),
        top_k=f.count("num_experts_per_tok"),
        expert_width=f.count("moe_intermediate_size"),
        shared_width=f.count("shared_expert_intermediate_size"),
        **_ngram(f, ngram_rows, buffers),
        output_gate=str(f.get("output_gate_type") or f.get("hidden_act", "silu")),
    )
    return check_geometry(geometry, str(path))


def _check_variant(f: Fields) -> None:
    """Switches of the architecture that this build has one side of."""
    wanted = {"norm_topk_prob": True, "attention_bias": False, "hidden_act": "silu", "indexer_kv_heads": 1}
    for key, value in wanted.items():
        if f.get(key, value) != value:
            raise PackError(f"{f.path}: {key!r} is {f.get(key)!r}, this build runs {value!r} only")


def _interval(f: Fields) -> int:
    """Attention on every n-th layer; a list of layer types must say just that."""
    num_layers, types = f.count("num_hidden_layers"), f.get("layer_types")
    if types is None:
        return f.count("full_attention_interval", 4)
    if not isinstance(types, list) or len(types) != num_layers:
        raise PackError(f"{f.path}: 'layer_types' does not list {num_layers} layers")
    unknown = sorted({str(t) for t in types} - {*_ATTENTION, "linear_attention"})
    if unknown:
        raise PackError(f"{f.path}: 'layer_types' holds {unknown[0]!r}, this build runs linear_attention and {' or '.join(_ATTENTION)}")
    attention = [i for i, kind in enumerate(types) if kind in _ATTENTION]
    interval = attention[0] + 1 if attention else num_layers + 1
    if attention != list(range(interval - 1, num_layers, interval)):
        raise PackError(f"{f.path}: 'layer_types' has attention on layers {attention}, this build wants it on every n-th layer")
    return interval


def _rope(f: Fields) -> dict[str, Any]:
    rope = f.get("rope_parameters") or f.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise PackError(f"{f.path}: 'rope_parameters' is no object")
    if rope.get("rope_type", "default") != "default":
        raise PackError(f"{f.path}: rope_type {rope['rope_type']!r} is not read, only 'default'")
    base = rope.get("rope_theta", f.get("rope_theta"))
    share = rope.get("partial_rotary_factor", f.get("partial_rotary_factor", 1.0))
    rotary = int(f.count("head_dim") * f.number(share, "partial_rotary_factor"))
    sections = f.counts(rope.get("mrope_section", [rotary // 2]), "mrope_section")
    return {
        "rotary_dim": rotary,
        "rope_base": f.number(base, "rope_theta"),
        "rope_sections": sections + (0,) * (4 - len(sections)),  # text, height, width, and one unused, as GGUF has them
    }


def _ngram(f: Fields, rows: int, buffers: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    layers = f.counts(f.get("ple_layer_ids", []), "ple_layer_ids")
    if len(layers) > 1:
        raise PackError(f"{f.path} has n-gram embeddings on layers {list(layers)}, this build reads a model with one")
    size, per_order = (f.count("ngram_size", 3), f.count("heads_per_ngram", 8)) if layers else (0, 0)
    heads = max(0, size - 1) * per_order
    if layers and (not 2 <= size <= 64 or not 0 < heads <= 4096):
        raise PackError(f"{f.path}: n-grams of {size} with {per_order} heads each cannot be")
    width = f.count("ple_embed_dim", f.count("hidden_size")) if layers else 0
    if layers and width % heads:
        raise PackError(f"{f.path}: 'ple_embed_dim' {width} is no multiple of {heads} n-gram heads")
    eos = f.get("eos_token_id", 0) if layers else 0
    eos = eos[0] if isinstance(eos, list) and eos else eos
    if not isinstance(eos, int):
        raise PackError(f"{f.path}: 'eos_token_id' is {eos!r}, the n-gram history needs a token id")
    return {
        "ngram_layers": tuple(layer - 1 for layer in layers),  # 1-based there
        "ngram_size": size,
        "ngram_heads": per_order,
        "ngram_width": width // heads if heads else 0,
        "ngram_conv": f.count("ple_conv_kernel_size", 4) if layers else 0,
        "ngram_rows": rows if layers else 0,
        "ngram_eos": eos,
        **(_hash(f, heads, size, buffers) if layers else {"ngram_multipliers": (), "ngram_offsets": (), "ngram_vocab_sizes": ()}),
    }


def _hash(f: Fields, heads: int, ngram_size: int, buffers: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    sizes = buffers.get("ngram_heads_vocab_sizes") or table_sizes(_base(f), heads)
    return {
        "ngram_multipliers": buffers.get("layer_multipliers") or hash_multipliers(f.count("vocab_size"), ngram_size, f.count("seed", 1234)),
        "ngram_offsets": buffers.get("ngram_heads_offsets") or table_offsets(sizes),
        "ngram_vocab_sizes": sizes,
    }


def _base(f: Fields) -> int:
    base = f.count("ngram_vocab_size_base", 20_000_000)
    if not 2 <= base < 1 << 36:  # beyond it, primes would be looked for for minutes
        raise PackError(f"{f.path}: 'ngram_vocab_size_base' is {base:,}")
    return base
