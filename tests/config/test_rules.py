"""Settings that contradict each other, and the shipped groups, which do not."""

from __future__ import annotations

import pytest

from strata_recipes.config.choices import ExpertsMode, Sampler, Source
from strata_recipes.config.compose import compose_config, conf_dir, config_hash, leaves
from strata_recipes.config.names import GROUPS
from strata_recipes.config.overrides import options
from strata_recipes.config.rules import contradictions
from strata_recipes.config.schema import Config, Message


def plain() -> Config:
    """A config without contradictions, from the schema's own defaults."""
    config = Config()
    config.workload.text = "Hello"
    config.model.source = "file.gguf"
    return config


def test_the_defaults_do_not_contradict_each_other() -> None:
    assert contradictions(plain()) == []


def test_a_budget_needs_a_size_and_a_size_a_budget() -> None:
    config = plain()
    config.experts.mode = ExpertsMode.budget
    assert contradictions(config) == ["experts.mode=budget needs a size: add experts.ram_budget=14GiB, or take experts=auto"]
    config.experts.ram_budget = 5
    assert contradictions(config) == []
    config.experts.mode = ExpertsMode.mapped
    (fault,) = contradictions(config)
    assert fault.startswith("experts.ram_budget=5 applies to experts.mode=budget only, here it is mapped")


@pytest.mark.parametrize(("name", "value"), [("temperature", 0.6), ("top_k", 20), ("top_p", 0.9), ("seed", 0)])
def test_sampling_settings_belong_to_sampling(name: str, value: float) -> None:
    config = plain()
    setattr(config.decode, name, value)
    (fault,) = contradictions(config)
    assert fault == f"decode.{name}={value} does not apply to decode.sampler=greedy: take decode=sample, or leave it out"
    config.decode.sampler = Sampler.sample
    assert len(contradictions(config)) == 3  # the other three are not stated


def test_a_workload_needs_a_prompt_and_a_seed_a_synthetic_one() -> None:
    config = plain()
    config.workload.text = None
    assert contradictions(config)[0].startswith("workload has no prompt")
    config.workload.messages = [Message("user", "Hi")]
    assert contradictions(config) == []
    config.workload.seed = 3
    assert contradictions(config)[0].startswith("workload.seed=3 applies to a synthetic prompt only")
    config.workload.tokens = 7
    assert contradictions(config) == []


def test_a_model_source_belongs_to_its_kind() -> None:
    config = plain()
    config.model.source = None
    for kind, wanted in ((Source.gguf, "file: add model.source=FILE"), (Source.hf, "folder: add model.source=DIR")):
        config.model.kind = kind
        (fault,) = contradictions(config)
        assert fault.startswith(f"model.kind={kind.name} needs its {wanted}")
    config.model.source = "d"
    assert contradictions(config) == []
    config.model.kind = Source.declared
    assert contradictions(config)[0].startswith("model.source='d' does not apply to model.kind=declared")


@pytest.mark.parametrize(("name", "value"), [("hidden", 3), ("vocab", 5), ("rope_sections", [1])])
def test_what_files_say_is_not_stated(name: str, value: object) -> None:
    config = plain()
    setattr(config.model.geometry, name, value)
    config.model.dense = "Q8_0"
    faults = contradictions(config)
    assert [fault.split(" ")[0] for fault in faults] == [f"model.geometry.{name}", "model.dense"]
    config.model.kind, config.model.source = Source.synthetic, None
    assert contradictions(config) == []


def test_a_skew_has_an_end() -> None:
    config = plain()
    config.model.skew = 1e9
    (fault,) = contradictions(config)
    assert fault.startswith("model.skew=1e+09 is more than 5")


def test_free_memory_is_not_more_than_there_is() -> None:
    config = plain()
    config.hardware.ram, config.hardware.available = 10, 11
    config.hardware.gpu.vram, config.hardware.gpu.free = 6, 7
    assert [fault.split(":")[0] for fault in contradictions(config)] == [
        "hardware.available=11 is more than hardware.ram=10",
        "hardware.gpu.free=7 is more than hardware.gpu.vram=6",
    ]


NEEDS = {
    ("experts", "budget"): ["experts.ram_budget=1GiB"],
    ("workload", "text"): ["workload.text=Hi"],
    ("workload", "token_ids"): ["workload.token_ids_file=ids.npy"],
    ("model", "hf"): ["model.source=folder"],
    ("model", "gguf"): ["model.source=file.gguf"],
    ("mode", "bench"): ["bench.arms.a=[]", "bench.arms.b=[kv=fp16]"],
    ("mode", "reproduce"): ["result=folder"],
}
SHIPPED = {group: options(group, [conf_dir()]) for group in GROUPS}


@pytest.mark.parametrize("turn", range(max(len(names) for names in SHIPPED.values())))
def test_every_shipped_option_composes(turn: int) -> None:
    """One option of each group at a time, so that every option has its turn."""
    chosen = {group: names[turn % len(names)] for group, names in SHIPPED.items()}
    needed = [line for pair in chosen.items() for line in NEEDS.get(pair, [])]
    config = compose_config([*(f"{group}={option}" for group, option in chosen.items()), *needed])
    assert (config.kv.format.name, config.compute.arithmetic.name) == (chosen["kv"], chosen["compute"])
    assert (config.experts.mode.name, config.mode.name.name) == (chosen["experts"], chosen["mode"])


def test_the_workloads_have_the_lengths_of_the_reports() -> None:
    names = ["prompt_2k", "prompt_7k4", "prompt_8k1", "prompt_12k9", "prompt_32k", "prompt_51k5", "prompt_224k"]
    shipped = [compose_config([f"workload={name}"]) for name in names]
    assert [config.workload.tokens for config in shipped] == [2048, 7400, 8100, 12900, 32768, 51500, 223706]
    chat = compose_config(["workload=prompt_chat"])
    assert (chat.workload.tokens, chat.decode.max_new_tokens) == (44, 1024)


def test_the_default_config() -> None:
    config = compose_config()
    assert (config.workload.text, config.workload.template.name) == ("Tell me a story.", "auto")
    assert [config.kv.format.name, config.compute.arithmetic.name, config.decode.sampler.name] == ["fp32", "f32", "greedy"]
    assert (config.mode.name.name, config.results.root, config.prefill.chunk, config.experts.slots) == ("run", "results", "auto", "auto")


def test_a_recipe_sets_what_it_says_and_the_command_line_wins() -> None:
    config = compose_config(["recipe=desktop_32gb_resident"])
    assert (config.hardware.gpu.reserve, config.kv.max_context, config.kv.format.name) == (1500 << 20, 262144, "int8")
    assert (config.experts.mode.name, config.mode.name.name) == ("resident", "plan")
    over = compose_config(["recipe=desktop_32gb_resident", "kv.max_context=5", "kv=fp16"])
    assert (over.kv.max_context, over.kv.format.name) == (5, "fp16")


def test_leaves_walks_the_whole_schema() -> None:
    found = {leaf.key: leaf for leaf in leaves(Config)}
    assert len(found) == len(leaves(Config))
    assert {"hardware.gpu.vram", "model.geometry.num_layers", "workload.messages", "results.root", "mode.name"} <= set(found)
    assert "hardware.gpu" not in found
    key, metadata, kind = found["prefill.chunk"]
    assert (key, metadata["kind"], metadata["auto"], metadata["low"]) == ("prefill.chunk", "count", True, 1)
    assert kind == int | float | str


def test_the_hash_knows_what_was_asked_for_and_nothing_else() -> None:
    config = compose_config()
    first = config_hash(config)
    assert len(first) == 8 and int(first, 16) >= 0
    config.results.root = "elsewhere"
    assert config_hash(config) == first
    config.hardware.ram, config.hardware.gpu.vram, config.hardware.probed = 5, 6, ["ram", "hardware.gpu.vram"]
    assert config_hash(config) == first
    config.hardware.probed = ["ram"]
    assert config_hash(config) != first
    assert config_hash(compose_config(["prefill.chunk=64"])) != first
    assert config_hash(compose_config(["prefill.chunk=6_4"])) == config_hash(compose_config(["prefill.chunk=64.0"]))
