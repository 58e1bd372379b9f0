"""Stated models for the declared and synthetic tests."""

from __future__ import annotations

from typing import Any

from strata_recipes.config import choices, schema

SMALL: dict[str, Any] = dict(
    num_layers=4, hidden=128, vocab=300, context_length=1024, norm_eps=1e-6, attention_interval=4,
    gdn_key_heads=2, gdn_value_heads=4, gdn_head_dim=32, gdn_conv=4,
    query_heads=4, kv_heads=2, head_dim=32, rotary_dim=16, rope_base=1e4, rope_sections=[4, 2, 2, 0],
    indexer_heads=2, indexer_dim=32, index_block=4, index_budget=16, streams=4, stream_rank=32,
    num_experts=40, top_k=4, expert_width=64, shared_width=64,
    ngram_layers=[1], ngram_size=3, ngram_heads=2, ngram_width=32, ngram_conv=4, ngram_rows=500,
)  # fmt: skip
# the published geometry, from the facts on the real model
REAL: dict[str, Any] = dict(
    num_layers=48, hidden=2560, vocab=248_320, context_length=262_144, norm_eps=1e-6, attention_interval=4,
    gdn_key_heads=16, gdn_value_heads=48, gdn_head_dim=128, gdn_conv=4,
    query_heads=24, kv_heads=2, head_dim=256, rotary_dim=64, rope_base=1e7, rope_sections=[11, 11, 10, 0],
    indexer_heads=4, indexer_dim=128, index_block=4, index_budget=2048, streams=4, stream_rank=320,
    num_experts=512, top_k=10, expert_width=640, shared_width=640,
    ngram_layers=[1], ngram_size=3, ngram_heads=8, ngram_width=160, ngram_conv=4, ngram_rows=320_001_536,
)  # fmt: skip


def model(kind: str, geometry: dict[str, Any], experts: list[tuple[int, str, str, str]], **more: Any) -> schema.Model:
    runs = [schema.ExpertFormats(*run) for run in experts]
    fields = {"dense": "Q8_0", "name": "stated"} | more
    return schema.Model(kind=choices.Source[kind], geometry=schema.Geometry(**geometry), experts=runs, **fields)
