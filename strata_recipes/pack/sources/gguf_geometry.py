"""The geometry of a qwen4exp model from GGUF metadata. Reads no tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strata_recipes.errors import PackError
from strata_recipes.pack.geometry import check_geometry
from strata_recipes.pack.index import Geometry

ARCHITECTURE = "qwen4exp"


class Keys:
    """Typed look-ups; PackError names file and key."""

    def __init__(self, metadata: dict[str, Any], path: Path) -> None:
        self._metadata, self._path = metadata, path

    def has(self, key: str) -> bool:
        return f"{ARCHITECTURE}.{key}" in self._metadata

    def number(self, key: str) -> float:
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PackError(f"{self._path}: the metadata key {ARCHITECTURE}.{key} is {value!r}, a number is wanted")
        return value

    def count(self, key: str) -> int:
        value = self.number(key)
        if not isinstance(value, int) or value < 0:
            raise PackError(f"{self._path}: the metadata key {ARCHITECTURE}.{key} is {value!r}, a count is wanted")
        return value

    def counts(self, key: str) -> tuple[int, ...]:
        value = self._get(key)
        if not isinstance(value, list) or not all(isinstance(v, int) for v in value):
            raise PackError(f"{self._path}: the metadata key {ARCHITECTURE}.{key} is not a list of whole numbers")
        return tuple(value)

    def _get(self, key: str) -> Any:
        if not self.has(key):
            raise PackError(
                f"{self._path} lacks the metadata key {ARCHITECTURE}.{key}: it was converted by a tool that does not know this model"
            )
        return self._metadata[f"{ARCHITECTURE}.{key}"]


def check_architecture(metadata: dict[str, Any], path: Path) -> None:
    """PackError with both names where the file holds another kind of model."""
    found = metadata.get("general.architecture")
    if found != ARCHITECTURE:
        raise PackError(f"{path} holds a model of architecture {found!r}, this build runs {ARCHITECTURE!r}")


def gguf_geometry(metadata: dict[str, Any], path: Path, vocab: int, ngram_rows: int, num_layers: int) -> Geometry:
    """The geometry; vocabulary, table rows and the layer count (without MTP layers) come from the tensor table."""
    keys = Keys(metadata, path)
    head_dim = keys.count("ssm.state_size")
    geometry = Geometry(
        num_layers=num_layers,
        hidden=keys.count("embedding_length"),
        vocab=vocab,
        context_length=keys.count("context_length"),
        norm_eps=float(keys.number("attention.layer_norm_rms_epsilon")),
        attention_interval=keys.count("full_attention_interval"),
        gdn_key_heads=keys.count("ssm.group_count"),
        gdn_value_heads=keys.count("ssm.time_step_rank"),
        gdn_head_dim=head_dim,
        gdn_conv=keys.count("ssm.conv_kernel"),
        query_heads=keys.count("attention.head_count"),
        kv_heads=keys.count("attention.head_count_kv"),
        head_dim=keys.count("attention.key_length"),
        rotary_dim=keys.count("rope.dimension_count"),
        rope_base=float(keys.number("rope.freq_base")),
        rope_sections=keys.counts("rope.dimension_sections"),
        indexer_heads=keys.count("attention.indexer.head_count"),
        indexer_dim=keys.count("attention.indexer.key_length"),
        index_block=max(keys.counts("attention.compress_ratios"), default=0),
        index_budget=keys.count("attention.indexer.top_k"),
        streams=keys.count("hyper_connection.count"),
        stream_rank=keys.count("hyper_connection.low_rank"),
        num_experts=keys.count("expert_count"),
        top_k=keys.count("expert_used_count"),
        expert_width=keys.count("expert_feed_forward_length"),
        shared_width=keys.count("expert_shared_feed_forward_length"),
        **_ngram(keys, ngram_rows, path),
    )
    _check_layers(check_geometry(geometry, str(path)), keys, path)
    return geometry


def _ngram(keys: Keys, rows: int, path: Path) -> dict[str, Any]:
    layers = keys.counts("ple.layers") if keys.has("ple.layers") else ()
    if len(layers) > 1:
        raise PackError(f"{path} has n-gram embeddings on layers {list(layers)}, this build reads a model with one")
    if not layers:
        return NO_NGRAM
    return {
        "ngram_layers": layers,
        "ngram_size": keys.count("ple.ngram_size"),
        "ngram_heads": keys.count("ple.heads_per_ngram"),
        "ngram_width": keys.count("embedding_length_per_layer_input"),
        "ngram_conv": keys.count("ple.conv_kernel"),
        "ngram_rows": rows,
        "ngram_eos": keys.count("ple.eos_token_id"),
        "ngram_multipliers": keys.counts("ple.layer_multipliers"),
        "ngram_offsets": keys.counts("ple.head_offsets"),
        "ngram_vocab_sizes": keys.counts("ple.head_vocab_sizes"),
    }


NO_NGRAM: dict[str, Any] = {
    "ngram_layers": (), "ngram_size": 0, "ngram_heads": 0, "ngram_width": 0, "ngram_conv": 0, "ngram_rows": 0, "ngram_eos": 0,
    "ngram_multipliers": (), "ngram_offsets": (), "ngram_vocab_sizes": (),
}  # fmt: skip


def _check_layers(g: Geometry, keys: Keys, path: Path) -> None:
    """The lists a layer must say the same as the interval, and twice-stated sizes must agree."""
    wanted = [g.is_attention(layer) for layer in range(g.num_layers)]
    ratios = keys.counts("attention.compress_ratios")[: g.num_layers]
    if [r == g.index_block for r in ratios] != wanted or any(r not in (0, g.index_block) for r in ratios):
        raise PackError(f"{path}: attention.compress_ratios {list(ratios)} do not fit attention on every {g.attention_interval}th layer")
    if keys.has("attention.recurrent_layers"):
        recurrent = keys.counts("attention.recurrent_layers")[: g.num_layers]
        if [not r for r in recurrent] != wanted:
            raise PackError(f"{path}: attention.recurrent_layers do not fit attention on every {g.attention_interval}th layer")
    inner = g.gdn_value_heads * g.gdn_head_dim
    if keys.has("ssm.inner_size") and keys.count("ssm.inner_size") != inner:
        raise PackError(
            f"{path}: ssm.inner_size is {keys.count('ssm.inner_size'):,}, {g.gdn_value_heads} heads of {g.gdn_head_dim} are {inner:,}"
        )
    if keys.has("attention.value_length") and keys.count("attention.value_length") != g.head_dim:
        raise PackError(f"{path}: values of {keys.count('attention.value_length')} and keys of {g.head_dim} a head, they must be equal")
