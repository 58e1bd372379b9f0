"""Every leaf of the config changes what the plan decided, or is refused where it cannot apply. None is silently ignored."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest

from strata_recipes.config.compose import compose_config, leaves
from strata_recipes.config.schema import Config
from strata_recipes.errors import StrataError
from strata_recipes.modes.models import model_facts
from strata_recipes.modes.prepare import prepare

BASE = ("model=qwen38_flash_next_q2_0", "decode.max_new_tokens=64")
SMALL, ROOMY = "hardware=rtx3060_6gb", "hardware=h200"  # a geometry twice as large does not fit the laptop
LAYER_MAJOR = ("prefill.order=layer_major", "kv.max_context=4096")
PROMPT = ("workload=synthetic", "workload.tokens=4_000")

# Where files lie, and what things are called: no decision hangs on them. Each is printed or recorded, and tested there.
PLACES_AND_LABELS = {
    "results.root",  # where the folder goes: tests/results
    "results.folder",
    "sweep.resume",  # of sweeps alone, refused elsewhere: tests/sweeps
    "sweep.jobs_per_gpu",
    "sweep.metrics",
    "calibrate.name",  # of one mode, which plans nothing: tests/calibrate
    "calibrate.folder",
    "calibrate.rounds",
    "calibrate.file_bytes",
    "profile.files",  # of one mode, which plans for its own prompts: tests/modes
    "profile.merge",
    "profile.out",
    "hardware.name",
    "hardware.gpu.name",
    "hardware.gpu.capability",  # which kernels are compiled: known when there are CUDA kernels, printed until then
    "hardware.probed",  # written by the probe, not by a user
    "model.name",
    "model.note",
    "mode.name",  # what is done with the plan
    "mode.table",  # of published figures: tests/modes
    "mode.profiles",  # the plan of each shipped profile: tests/modes
    "result",  # the folder that mode=reproduce runs again; noted in others, as those of OTHER_MODES
}

OTHER_MODES = ("bench.", "verify.")  # read by modes that plan nothing themselves; noted in others: tests/config/test_other_modes.py

# The changed value first, then what else it takes for the leaf to apply, which the plan to compare with has too.
CHANGES: dict[str, list[str]] = {
    "hardware.os": ["hardware.os=windows", "hardware.gpu.reserve=auto"],
    "hardware.ram": ["hardware.ram=16GiB"],
    "hardware.available": ["hardware.available=16GiB"],
    "hardware.headroom": ["hardware.headroom=6GiB"],
    "hardware.cpu.cores": ["hardware.cpu.cores=4"],
    "hardware.cpu.bandwidth": ["hardware.cpu.bandwidth=1GB/s", "experts.mode=budget", "experts.ram_budget=10GiB"],
    "hardware.cpu.flops": ["hardware.cpu.flops=1e9", "hardware.gpu.vram=0"],
    "hardware.gpu.vram": ["hardware.gpu.vram=8GiB"],
    "hardware.gpu.free": ["hardware.gpu.free=5.5GiB"],
    "hardware.gpu.reserve": ["hardware.gpu.reserve=300MiB"],
    "hardware.gpu.bandwidth": ["hardware.gpu.bandwidth=30GB/s"],
    "hardware.gpu.flops": ["hardware.gpu.flops=1e12"],
    "hardware.gpu.pcie": ["hardware.gpu.pcie=1GB/s"],
    "hardware.drive.direct": ["hardware.drive.direct=0.4GB/s", "experts.file_io=direct"],
    "hardware.drive.faults": ["hardware.drive.faults=0.1GB/s"],
    "hardware.drive.cached": ["hardware.drive.cached=1GB/s", "experts=mapped"],
    "hardware.drive.cached_share": ["hardware.drive.cached_share=1", "startup=mapped", "hardware.headroom=2GiB"],
    "hardware.efficiency.prompt": ["hardware.efficiency.prompt=0.01"],
    "hardware.efficiency.decode": ["hardware.efficiency.decode=0.01"],
    "hardware.start_s": ["hardware.start_s=30"],
    "model.kind": ["model.kind=synthetic"],
    "model.source": ["model.source=/nowhere.gguf"],
    "model.pack": ["model.pack=/nowhere"],
    "model.scale_of": ["model.scale_of=qwen38_flash_next_iq2_xs"],
    "model.experts": ["model.experts=[{layers:48,gate:Q8_0,up:Q8_0,down:Q8_0}]"],
    "model.dense": ["model.dense=Q4_0"],
    "model.seed": ["model.seed=3"],
    "model.skew": ["model.skew=1.2"],
    "model.locality": ["model.locality=0.9", "experts=mapped", "experts.file_io=buffered"],
    "experts.mode": ["experts.mode=full_arena"],
    "experts.slots": ["experts.slots=7"],
    "experts.ram_budget": ["experts.ram_budget=3GiB"],
    "experts.file_io": ["experts.file_io=buffered"],
    "experts.profile": ["experts.profile=/nowhere.npz"],
    "experts.verify": ["experts.verify=true"],
    "experts.profile_save": ["experts.profile_save=learned.npz"],
    "experts.adapt.every": ["experts.adapt.every=16"],
    "experts.adapt.swaps": ["experts.adapt.swaps=3", "experts.adapt.every=16"],
    "experts.adapt.decay": ["experts.adapt.decay=0.5", "experts.adapt.every=16"],
    "startup.strategy": ["startup.strategy=mapped"],
    "startup.merge": ["startup.merge=1MiB"],
    "startup.fill_batch": ["startup.fill_batch=3"],
    "startup.copy_batch": ["startup.copy_batch=3"],
    "startup.threads": ["startup.threads=2"],
    "startup.depth": ["startup.depth=3"],
    "startup.warm": ["startup.warm=true", "experts=mapped", "experts.file_io=buffered"],
    "prefill.order": ["prefill.order=chunked"],
    "prefill.chunk": ["prefill.chunk=64"],
    "prefill.super_chunk": ["prefill.super_chunk=1024", *LAYER_MAJOR],
    "prefill.dense": ["prefill.dense=streamed", *LAYER_MAJOR],
    "prefill.residuals": ["prefill.residuals=vram", *LAYER_MAJOR],
    "prefill.margin": ["prefill.margin=0.4GiB", *LAYER_MAJOR],
    "prefill.prefetch": ["prefill.prefetch=false", *LAYER_MAJOR, "experts=mapped"],
    "prefill.direct": ["prefill.direct=false", *LAYER_MAJOR, "experts=mapped", "experts.file_io=buffered"],
    "prefill.direct_min": ["prefill.direct_min=0.25", "prefill.direct=true", "experts=mapped", "experts.file_io=buffered"],
    "prefill.warm": ["prefill.warm=true", "prefill.direct=false", "experts=mapped", "experts.file_io=buffered"],
    "decode.sampler": ["decode=sample"],
    "decode.max_new_tokens": ["decode.max_new_tokens=3"],
    "decode.stop_at_eos": ["decode.stop_at_eos=false"],
    "decode.draft": ["decode.draft=suffix"],
    "decode.draft_tokens": ["decode.draft_tokens=2", "decode.draft=suffix"],
    "decode.temperature": ["decode.temperature=0.3"],
    "decode.top_k": ["decode.top_k=3"],
    "decode.top_p": ["decode.top_p=0.3"],
    "decode.seed": ["decode.seed=3"],
    "kv.format": ["kv.format=fp16"],
    "kv.max_context": ["kv.max_context=9000"],
    "kv.resident_tokens": ["kv.resident_tokens=64"],
    "compute.arithmetic": ["compute.arithmetic=bf16"],
    "compute.device": ["compute.device=cuda"],
    "compute.threads": ["compute.threads=3"],
    "workload.token_ids_file": ["workload.token_ids_file=/nowhere.npy"],
    "workload.tokens": ["workload.tokens=5000"],
    "workload.seed": ["workload.seed=5"],
    "workload.text_file": ["workload.text_file=/nowhere.txt", "workload=story"],
    "workload.messages": ["workload.messages=[{role:user,content:hello}]", "workload=story"],
    "workload.text": ["workload.text=hello", "workload=story"],
    "workload.template": ["workload.template=chat"],
    "emulate.ram": ["emulate.ram=ballast"],
    "emulate.links": ["emulate.links=throttle"],
    "results.logits": ["results.logits=all", "workload=synthetic", "workload.tokens=100"],
}
GEOMETRY_CHANGES: dict[str, Any] = {  # the others are doubled
    "norm_eps": 1e-5,
    "rope_base": 1e6,
    "rope_sections": "[12,10,10,0]",
    "ngram_layers": "[0]",
    "attention_interval": 6,
    "gdn_key_heads": 24,
    "top_k": 12,
}
FOR_SAMPLING = {"decode.temperature", "decode.top_k", "decode.top_p", "decode.seed"}


@functools.cache
def decided(overrides: tuple[str, ...]) -> dict[str, Any]:
    """What the plan of BASE and these overrides decides: all but the texts that repeat the config."""
    config = compose_config([*BASE, *overrides])
    with model_facts(config.model) as facts:
        plan = dataclasses.asdict(prepare(config, facts).plan)
    return {name: value for name, value in plan.items() if name not in ("decisions", "notes", "hardware")}


KEYS = [leaf.key for leaf in leaves(Config) if leaf.key not in PLACES_AND_LABELS and not leaf.key.startswith(OTHER_MODES)]


@pytest.mark.parametrize("key", KEYS)
def test_leaf_changes_the_plan_or_is_refused(key: str) -> None:
    change, *context = changes(key)
    prompt = () if any(line.startswith("workload=") for line in context) else PROMPT
    before = (ROOMY if key.startswith("model.geometry.") else SMALL, *prompt, *context)
    try:
        changed = decided((*before, change))
    except StrataError as error:
        named = (key.rsplit(".", 1)[-1], change.split("=", 1)[1])  # the key, or the value: a file that is not there
        assert any(name in str(error) for name in named), f"refused, but without a word of {key}: {error}"
        return
    assert changed != decided(before), f"{key} changes nothing that the plan decides, and is not refused"


def changes(key: str) -> list[str]:
    """The override that changes a leaf, and those that it needs beside it."""
    if not key.startswith("model.geometry."):
        return CHANGES[key] + (["decode=sample"] if key in FOR_SAMPLING else [])
    name = key.rsplit(".", 1)[1]
    now = getattr(compose_config(BASE).model.geometry, name)
    return [f"{key}={GEOMETRY_CHANGES.get(name, now and now * 2)}"]


def test_the_labels_are_leaves() -> None:
    assert PLACES_AND_LABELS <= {leaf.key for leaf in leaves(Config)}


def test_every_other_leaf_has_a_change() -> None:
    assert set(CHANGES) == {key for key in KEYS if not key.startswith("model.geometry.")}
