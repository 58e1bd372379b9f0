"""Unknown keys and options, emptied groups, misspelt defaults: refused wherever they come from, all in one message."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata_recipes.config.compose import compose_config, conf_dir
from strata_recipes.config.overrides import check_overrides
from tests.config.test_values import faults

UNKNOWN = [
    ("prefil.chunk=3", "prefil.chunk: there is no such key, nearest is prefill"),
    ("prefill.chnk=3", "prefill.chnk: there is no such key, nearest is prefill.chunk"),
    ("+prefill.chnk=3", "prefill.chnk: there is no such key, nearest is prefill.chunk"),
    ("++prefill.chnk=3", "prefill.chnk: there is no such key, nearest is prefill.chunk"),
    ("+prefill={chnk: 512}", "prefill.chnk: there is no such key, nearest is prefill.chunk"),
    ("++plna.x=1", "plna.x: there is no such key, known here are hardware, model,"),
    ("hardware.gpu.vrm=6GiB", "hardware.gpu.vrm: there is no such key, nearest is hardware.gpu.vram"),
    ("experts.chunk=3", "experts.chunk: there is no such key, nearest is prefill.chunk"),
    ("hardware.ram.size=3", "hardware.ram.size: there is no such key, hardware.ram is a value and has none below it"),
    ("hardwre=cpu", "hardwre: there is no such key, nearest is hardware"),
    ("qqq=1", "qqq: there is no such key, known here are hardware, model,"),
    ("hydra.run.dri=x", "nearest is hydra.run.dir"),
    ("++hydra.run.dri=x", "nearest is hydra.run.dir"),
    ("+hydra.foo=1", "known in hydra are"),
    ("~prefill.chunk", "~prefill.chunk deletes"),
    ("~kv", "~kv deletes"),
    ("hardware@gpu=cpu", "puts a group into another place"),
    ("kv=fp17", "nearest of fp16, fp32, int8, q4_0 is fp1"),
    ("kv=zzz", "kv=zzz: there is no such option, known are fp16, fp32, int8, q4_0"),
    ("kv=5", "kv=5: there is no such option"),
    ("kv=null", "kv=null: a group cannot be empty, choose one of fp16, fp32, int8, q4_0"),
    ("kv=[fp16,fp32]", "only one option can hold"),
    ("results=x", "'x' is a single value, wanted are its keys (root, folder, logits)"),
    ("foo", "'foo' is not key=value"),
    ("kv", "'kv' is not key=value: write for example kv=VALUE"),
]


@pytest.mark.parametrize(("override", "told"), UNKNOWN)
def test_an_unknown_key_or_option_of_an_override(override: str, told: str) -> None:
    checked = check_overrides([override], [conf_dir()])
    assert len(checked.faults) == 1 and told in checked.faults[0]
    assert checked.good == ()


def test_all_of_them_at_once() -> None:
    one_by_one = {fault for override, _ in UNKNOWN for fault in check_overrides([override], [conf_dir()]).faults}
    assert set(faults(*(override for override, _ in UNKNOWN))) == one_by_one


def test_all_faults_of_all_overrides_in_one_message() -> None:
    found = faults("prefil.chunk=3", "decode.max_new_tokens=-3", "kv=fp17", "hydra.run.dri=x", "model.source=/a=b", "kv.max_context=64")
    assert [fault.split(":")[0].split(" ")[0] for fault in found] == [
        "prefil.chunk",
        "decode.max_new_tokens",
        "kv=fp17",
        "hydra.run.dri=x",
        "model.source=/a=b",
    ]


def test_faults_of_overrides_and_files_in_one_message(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [config, _self_]\nprefil: {chunk: 3}\ndecode: {max_new_tokens: -4, sed: 1}\n")
    found = faults("foo.x=1", config_dir=tmp_path, config_name="mine")
    assert [fault.split(":")[0] for fault in found] == ["foo.x", "prefil", "decode.sed", "decode.max_new_tokens"]


def test_what_is_known_may_be_added_with_a_plus() -> None:
    config = compose_config(["+decode.max_new_tokens=5", "++kv.max_context=7", "+kv=fp16", "+recipe=null"])
    assert (config.decode.max_new_tokens, config.kv.max_context, config.kv.format.name) == (5, 7, "fp16")


RECIPES = [
    ("hardware:", "hardware is null: leave it out, name one of its options, or state its keys (name, os,"),
    ("hardware: null", "hardware is null"),
    ("hardware: {gpu: }", "hardware.gpu is null"),
    ("hardware: 5", "hardware: 5 is a single value"),
    ("prefill: {chnk: 5}", "prefill.chnk: there is no such key, nearest is prefill.chunk"),
    ("hydra: {run: {dri: x}}", "hydra.run.dri: there is no such key of Hydra's, nearest is hydra.run.dir"),
    ("defaults:\n  - override /hardware: rtx3060_6g", "hardware=rtx3060_6g: there is no such option, nearest of"),
    ("defaults:\n  - override /hardwre: cpu", "hardwre (in recipe/mine.yaml): there is no such group, nearest of"),
    ("defaults:\n  - override /kv: null", "kv is null in a defaults list"),
    ("defaults:\n  - overide /kv: fp16", "'overide' in the defaults list, nearest of override, optional is override"),
    ("defaults:\n  - optioal /kv: fp16", "'optioal' in the defaults list, nearest of override, optional is optional"),
    ("a: [1", "mine.yaml is not YAML: expected ',' or ']'"),
    ("model: {note: '${nope'}", "model.note"),
    ("- a", "holds a list, not keys with values"),
]


@pytest.mark.parametrize(("text", "told"), RECIPES)
def test_a_fault_inside_a_recipe_file(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "mine.yaml").write_text(f"# @package _global_\n{text}\n")
    found = faults("recipe=mine", config_dir=tmp_path)
    assert told in found[0]
    assert all("\n" not in fault for fault in found)


def test_a_recipe_without_its_package_line(tmp_path: Path) -> None:
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "mine.yaml").write_text("prefill: {chunk: 5}\n")
    assert "lacks `# @package _global_`" in faults("recipe=mine", config_dir=tmp_path)[0]


def test_a_user_option_of_a_group_is_used_and_checked(tmp_path: Path) -> None:
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "mine.yaml").write_text("name: mine\nram: 12GiB\n")
    config = compose_config(["hardware=mine"], str(tmp_path))
    assert (config.hardware.name, config.hardware.ram) == ("mine", 12 << 30)
    (tmp_path / "hardware" / "mine.yaml").write_text("name: mine\nrom: 12GiB\n")
    assert faults("hardware=mine", config_dir=tmp_path) == ("hardware.rom: there is no such key, nearest is hardware.ram",)


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_bytes("defaults: [config, _self_]\nmodel: {note: é}\n".encode("latin-1"))
    assert "is not UTF-8 (byte 41)" in faults(config_dir=tmp_path, config_name="mine")[0]


def test_a_config_without_the_schema(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("prefill: {chunk: 5}\n")
    assert "begin its defaults list with `config_schema`" in faults(config_dir=tmp_path, config_name="mine")[0]


def test_folders_and_names_that_do_not_exist(tmp_path: Path) -> None:
    assert "there is no such folder" in faults(config_dir=tmp_path / "nope")[0]
    assert faults(config_dir=tmp_path, config_name="nope")[0].startswith("--config-name nope: no folder of the search path")
