"""resolved.yaml composes to an equal Config, whatever the texts in it; it is as strict as ever and takes leaves only."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from strata_recipes.config.compose import compose_config, resolved_yaml
from strata_recipes.config.composition import finished
from strata_recipes.config.schema import Config, Message
from tests.config.test_values import faults

TEXTS = [
    "données 模型 🙂 \u2028 \x85 \ufeff",
    "it's \"quoted\" \\ and\nnew\tlines\r\n",
    "C:\\models\\q2",
    "1e5", "6_000", "null", "true", "no", "~", "", " ", "12:30", "2026-11-30", "0x10", ".nan", "=", "<<", "- a", "a: b", "# c", "%x",
    "${x}", "\\${x}", "C:\\${x}", "C:\\\\${x}", "${oc.env:HOME}", "$", "${", "a ${b", "}${", "\\", "\\\\",
    "auto", "none", "chunked",
]  # fmt: skip


def replayed(config: Config, folder: Path, *overrides: str) -> Config:
    (folder / "resolved.yaml").write_text(resolved_yaml(config), encoding="utf-8", newline="\n")
    return compose_config(overrides, str(folder), "resolved")


def test_all_kinds_of_values_survive(tmp_path: Path) -> None:
    config = compose_config(
        [
            "hardware=rtx5090_32gb_windows", "model=qwen38_flash_next_iq2_xs", "decode=sample", "decode.temperature=1e-7",
            "hardware.drive.direct=1.6GB/s", "hardware.gpu.flops=1.23456789e17", "experts=budget", "experts.ram_budget=9007199254740993",
            "experts.verify=true", "workload=chat", "results.logits=all",
        ]
    )  # fmt: skip
    again = replayed(config, tmp_path)
    assert again == config
    assert again.experts.ram_budget == 9007199254740993
    assert resolved_yaml(again) == resolved_yaml(config)


def test_every_text_survives(tmp_path: Path) -> None:
    config = compose_config()
    config.workload.messages = [Message("user", text) for text in TEXTS]
    config.hardware.probed = ["ram", "gpu.vram"]
    assert replayed(config, tmp_path).workload.messages == config.workload.messages


def read_back(config: Config) -> Config:
    """As replayed, but without Hydra round it: the same reader of YAML, the same checks."""
    node = OmegaConf.create(resolved_yaml(config))
    assert isinstance(node, DictConfig) and node.pop("defaults")
    found: list[str] = []
    again = finished(node, {}, found)
    assert found == []
    return again


@settings(max_examples=40)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.text("\\${}'\"a\n:# "), min_size=25, max_size=25))
def test_any_text_survives(texts: list[str]) -> None:
    config = Config()
    config.workload.messages = [Message("user", text) for text in texts]
    assert read_back(config) == config


@given(st.floats(0, allow_infinity=False), st.integers(0, 2**63 - 1), st.floats(0, 1))
def test_any_number_survives(rate: float, size: int, share: float) -> None:
    config = Config()
    config.workload.text = "Hi"
    config.hardware.gpu.pcie, config.hardware.gpu.vram, config.model.skew = rate, size, share
    assert read_back(config) == config


def test_the_text_is_plain_data_behind_its_defaults_list() -> None:
    data = yaml.safe_load(resolved_yaml(compose_config(["hardware.ram=6GiB"])))
    assert data.pop("defaults") == ["config_schema", "results", "_self_"]
    assert (data["hardware"]["ram"], data["kv"]["format"], data["results"]["logits"]) == (6_442_450_944, "fp32", "none")
    assert list(data) == list(Config.__dataclass_fields__)


def test_a_replay_takes_leaves_but_no_groups(tmp_path: Path) -> None:
    config = compose_config(["prefill.chunk=64"])
    again = replayed(config, tmp_path, "prefill.chunk=7", "kv.format=fp16")
    assert (again.prefill.chunk, again.kv.format.name) == (7, "fp16")
    (fault,) = faults("kv=fp16", config_dir=tmp_path, config_name="resolved")
    assert fault.startswith("kv") and "a replay takes leaves only" in fault


def test_a_replay_is_as_strict(tmp_path: Path) -> None:
    replayed(compose_config(), tmp_path)
    assert "nearest is prefill.chunk" in faults("prefill.chnk=7", config_dir=tmp_path, config_name="resolved")[0]
    path = tmp_path / "resolved.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("  chunk: auto", "  chnk: auto"), encoding="utf-8")
    assert faults(config_dir=tmp_path, config_name="resolved") == ("prefill.chnk: there is no such key, nearest is prefill.chunk",)


@pytest.mark.parametrize("text", ["\ud800", "???"])
def test_a_text_that_cannot_be_replayed_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    assert faults(f"workload.text='{text}'")[0].startswith("workload.text: ")
