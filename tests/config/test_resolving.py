"""Interpolations, missing values, cycles, quoting: each fault is told with its key, each value is looked up once."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from strata_recipes.config.compose import compose_config
from strata_recipes.config.overrides import check_overrides
from strata_recipes.config.quoting import advice, quoted
from tests.config.test_values import faults


def test_an_interpolation_is_looked_up_once() -> None:
    calls: list[int] = []

    def count() -> int:
        calls.append(1)
        return len(calls)

    OmegaConf.register_new_resolver("test.count", count, replace=True)
    config = compose_config(["decode.max_new_tokens=${test.count:}"])
    assert (config.decode.max_new_tokens, len(calls)) == (1, 1)


def test_every_interpolation_that_fails_is_told(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "defaults: [config, _self_]\n"
        "hardware: {name: '${model.note}', gpu: '${hardware}', ram: '${oc.env:STRATA_NOT_SET}'}\n"
        "model: {note: '${workload.text}', dense: '${no.such}', scale_of: '${nothing:1}'}\n"
        "workload: {text: '${hardware.name}', messages: [{content: '???'}]}\n"
    )
    found = {fault.split(" ")[0].rstrip(":"): fault for fault in faults(config_dir=tmp_path, config_name="mine")}
    cycle = {"hardware.name", "model.note", "workload.text"}
    assert set(found) == cycle | {"hardware.gpu", "hardware.ram", "workload.messages.0.content", "model.dense", "model.scale_of"}
    assert all("it leads back to itself" in found[key] for key in cycle)
    assert "STRATA_NOT_SET" in found["hardware.ram"]
    assert found["workload.messages.0.content"].endswith("stands for a value that you must state: add workload.messages.0.content=VALUE")


def test_sections_that_hold_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [config, _self_]\nextra: {a: '${more}'}\nmore: {b: '${extra}'}\n")
    found = faults(config_dir=tmp_path, config_name="mine")
    assert any("holds itself" in fault or "leads back to itself" in fault for fault in found)


NEED_QUOTES = [
    "a=b",
    "models (1)",
    "x[1]",
    "it's",
    "模型",
    "données",
    "C:\\models (1)",
    'say "hi"',
    "#1=",
    "a,b(",
    "$HOME(1)",
    "a;b",
    "a&b",
    "a!",
]


@pytest.mark.parametrize("value", NEED_QUOTES)
def test_the_quoting_advised_for_sh_works(value: str) -> None:
    line = f"model.source={value}"
    (fault,) = check_overrides([line], None).faults
    assert advice(line) in fault and " in PowerShell, " in fault and fault.endswith(" in cmd")
    (argument,) = shlex.split(advice(line).removeprefix("write ").partition(" in sh, ")[0])
    assert check_overrides([argument], None).good == (argument,)
    assert OverridesParser.create().parse_override(argument).value() == value


def test_the_quoting_advised_for_windows() -> None:
    text = advice("model.source=C:\\a b\\it's $x `y (1)")
    assert """"model.source='C:\\a b\\it\\'s `$x ``y (1)'" in PowerShell""" in text
    assert text.endswith(""""model.source='C:\\a b\\it\\'s $x `y (1)'" in cmd""")


def test_a_value_that_ends_in_a_backslash() -> None:
    (fault,) = faults("model.source='C:\\models\\'")
    assert "'model.source=\"C:\\models\\\\\"' in sh" in fault
    assert compose_config(['model.source="C:\\models\\\\"']).model.source == "C:\\models\\"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_quoted_hands_any_text_through_the_grammar(text: str) -> None:
    assert OverridesParser.create().parse_override(quoted("a", text)).value() == text


def test_several_values_without_a_sweep() -> None:
    assert "prefill.chunk=1,2 holds several values: add -m" in faults("prefill.chunk=1,2")[0]
    assert "'workload.text=\"Hello, world\"' in sh" in faults("workload.text=Hello, world")[0]
    assert "add -m" in faults("prefill.chunk=range(1,3)")[0]
