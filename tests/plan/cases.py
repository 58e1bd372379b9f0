"""Configs, machines and indexes that the plan tests share: the shipped profiles and models, and small odd ones."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

from strata_recipes.config.choices import KvFormat
from strata_recipes.config.compose import compose_config
from strata_recipes.config.schema import Config, Kv, Workload
from strata_recipes.decide import build_plan
from strata_recipes.machine.facts import Cpu, Drive, Gpu, Machine
from strata_recipes.machine.probe import resolve_hardware
from strata_recipes.pack.declared import declared_index
from strata_recipes.pack.index import Geometry, PackIndex
from strata_recipes.pack.layout import dense_wanted, layer_experts, tensor
from strata_recipes.pack.sources import open_source
from strata_recipes.plan.plan import Plan
from strata_recipes.units import GiB, MiB

SEED = (
    "hardware=rtx5090_32gb_windows kv=int8 kv.max_context=262144 hardware.gpu.reserve=1500MiB experts=resident "
    "workload=prompt_32k prefill=chunked"  # the seed's start-up was measured with that order
)


@cache
def composed(overrides: str) -> tuple[Config, Machine]:
    """A config of the shipped conf/ and its machine; only declared profiles, so that nothing is probed. Not to be changed: it is shared."""
    config = compose_config(overrides.split())
    hardware, machine = resolve_hardware(config.hardware, Path())
    return dataclasses.replace(config, hardware=hardware), machine


@cache
def index_of(model: str) -> PackIndex:
    """The index of a shipped model."""
    asked = compose_config([f"model={model}"]).model
    if asked.kind.value == "declared":
        return declared_index(asked)
    with open_source(asked) as source:
        return source.index


def planned(overrides: str, model: str = "qwen38_flash_next_q2_0", prompt_tokens: int | None = None) -> Plan:
    """The plan of a shipped model and profile."""
    config, machine = composed(f"model={model} {overrides}")
    scale_of = index_of(config.model.scale_of) if config.model.scale_of else None
    return build_plan(config, machine, index_of(model), prompt_tokens, scale_of=scale_of)


def small_geometry(**changes: Any) -> Geometry:
    """Odd on purpose: counts that do not divide each other."""
    base: dict[str, Any] = dict(
        num_layers=4, hidden=64, vocab=300, context_length=4096, norm_eps=1e-6, attention_interval=4,
        gdn_key_heads=2, gdn_value_heads=6, gdn_head_dim=16, gdn_conv=4,
        query_heads=6, kv_heads=2, head_dim=32, rotary_dim=16, rope_base=1e7, rope_sections=(3, 3, 2, 0),
        indexer_heads=2, indexer_dim=16, index_block=4, index_budget=64, streams=4, stream_rank=8,
        num_experts=24, top_k=4, expert_width=64, shared_width=32,
        ngram_layers=(1,), ngram_size=3, ngram_heads=2, ngram_width=32, ngram_conv=4, ngram_rows=500,
        ngram_eos=0, ngram_multipliers=(), ngram_offsets=(), ngram_vocab_sizes=(),
    )  # fmt: skip
    return Geometry(**(base | changes))


MIXED = [("Q2_0", "Q2_0", "Q2_0"), ("Q8_0", "Q8_0", "Q8_0"), ("Q4_0", "Q4_0", "Q2_0"), ("F32", "F32", "F32")]


def small_index(formats: list[tuple[str, str, str]] | None = None, profile_id: str = "", **changes: Any) -> PackIndex:
    """A small pack whose layers have blobs of different sizes."""
    g = small_geometry(**changes)
    formats = formats or [MIXED[layer % len(MIXED)] for layer in range(g.num_layers)]
    dense = tuple(tensor(w, "F32" if w.exact or w.shape[-1] % 32 else "Q8_0") for w in dense_wanted(g))
    return PackIndex("small", "0" * 32, g, layer_experts(g, formats), dense, None, profile_id)


def machine(vram: int | None = 8 * MiB, available: int = 64 * MiB, **changes: Any) -> Machine:
    """A PC of small budgets; `vram` None: no GPU."""
    gpu = None if vram is None else Gpu("card", "8.9", vram, vram, 1e12, 1e14, 2e10)
    facts: dict[str, Any] = dict(name="pc", os="linux", ram_bytes=max(available, GiB), ram_available_bytes=available)
    facts |= dict(cpu=Cpu(4, 4e10, 2e11), gpu=gpu, drive=Drive(3e9, 1e9, 1e10))
    return Machine(**(facts | changes))


def small_config(**groups: Any) -> Config:
    """The defaults of the schema with a prompt of 100 tokens and no reserve."""
    config = Config(workload=Workload(tokens=100), kv=Kv(format=KvFormat.fp16), **groups)
    config.hardware.gpu.reserve, config.hardware.headroom = 0, 0
    config.decode.max_new_tokens = 20
    return config
