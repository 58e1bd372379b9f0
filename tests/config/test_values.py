"""Sizes, rates, counts, shares, choices and texts: what each may be, from every source, and what is refused."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata_recipes.config.choices import FileIo, Logits, Os, Template
from strata_recipes.config.compose import compose_config, leaves
from strata_recipes.config.overrides import check_overrides
from strata_recipes.config.schema import Config
from strata_recipes.errors import ConfigError
from strata_recipes.units import parse_bytes

GiB = 1 << 30
SIZES = [
    ("6GiB", 6_442_450_944),
    ("6 GB", 6_000_000_000),
    ("6_000", 6_000),
    ("8e9", 8_000_000_000),
    ("1.5GiB", 1_610_612_736),
    ("1_500MiB", 1_572_864_000),
    ("1.07GB", 1_070_000_000),
    ("9007199254740993", 9_007_199_254_740_993),
]


def faults(*overrides: str, config_dir: Path | None = None, config_name: str = "config") -> tuple[str, ...]:
    """The faults of a config that must be refused."""
    with pytest.raises(ConfigError) as error:
        compose_config(overrides, str(config_dir) if config_dir else None, config_name)
    return error.value.faults


def composed_from(folder: Path, text: str) -> Config:
    (folder / "mine.yaml").write_text(f"defaults: [config, _self_]\n{text}\n", encoding="utf-8")
    return compose_config((), str(folder), "mine")


def sizes_of(config: Config) -> list[object]:
    facts = config.hardware
    return [facts.ram, facts.available, facts.headroom, facts.gpu.vram, facts.gpu.free, facts.gpu.reserve]


@pytest.mark.parametrize(("text", "size"), SIZES)
def test_a_size_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    """From the command line bare, quoted, by environment and in a section; from a file bare and quoted."""
    monkeypatch.setenv("STRATA_TEST_SIZE", text)
    (tmp_path / "mine.yaml").write_text(f"defaults: [config, _self_]\nhardware: {{gpu: {{free: {text}, reserve: '{text}'}}}}\n")
    line = [f"hardware.ram={text}", f"hardware.available='{text}'", "hardware.headroom=${oc.env:STRATA_TEST_SIZE}"]
    config = compose_config([*line, f"hardware.gpu={{vram: {text}}}"], str(tmp_path), "mine")
    assert [(found, type(found)) for found in sizes_of(config)] == [(size, int)] * 6


@pytest.mark.parametrize(("text", "count"), [("6_000", 6000), ("8e3", 8000), ("64", 64), ("64.0", 64)])
def test_a_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, count: int) -> None:
    monkeypatch.setenv("STRATA_TEST_COUNT", text)
    (tmp_path / "mine.yaml").write_text(f"defaults: [config, _self_]\nkv: {{max_context: {text}}}\n")
    line = [f"decode.max_new_tokens={text}", f"prefill.chunk='{text}'", "compute.threads=${oc.env:STRATA_TEST_COUNT}"]
    config = compose_config(line, str(tmp_path), "mine")
    found = [config.decode.max_new_tokens, config.prefill.chunk, config.compute.threads, config.kv.max_context]
    assert [(value, type(value)) for value in found] == [(count, int)] * 4


@pytest.mark.parametrize(("text", "rate"), [("1.6GB/s", 1.6e9), ("500 MiB/s", 524_288_000.0), ("7e9", 7e9), ("0.84GB/s", 8.4e8)])
def test_a_rate(text: str, rate: float) -> None:
    found = compose_config([f"hardware.drive.direct={text}"]).hardware.drive.direct
    assert (found, type(found)) == (rate, float)


@given(st.integers(1, 10**9), st.integers(0, 9))
def test_a_decimal_size_is_exact(digits: int, places: int) -> None:
    whole, part = divmod(digits, 10**places)
    text = f"{whole}.{part:0{places}d}GB" if places else f"{whole}GB"
    assert parse_bytes(text) == digits * 10 ** (9 - places)


REFUSED = [
    ("hardware.ram=-1", "-1 is negative"),
    ("hardware.ram=nan", "nan is not finite"),
    ("hardware.ram=inf", "inf is not finite"),
    ("hardware.ram=true", "True is not a number"),
    ("hardware.ram=1.5", "not a whole number of bytes"),
    ("hardware.ram=0", "0 is below 1"),
    ("hardware.ram=auto", "'auto' is not a number"),
    ("hardware.ram='1,5GB'", "write 1.5 with a point"),
    ("hardware.ram=6GIGA", "unit 'GIGA'"),
    ("hardware.ram=1e30", "above 2**63 - 1"),
    ("hardware.ram=[1]", "a single value belongs here"),
    ("hardware.drive.direct=-3GB/s", "is negative"),
    ("hardware.drive.direct=3GB/h", "not a number"),
    ("hardware.cpu.cores=0", "0 is below 1"),
    ("hardware.cpu.cores=2.5", "2.5 is not whole"),
    ("prefill.chunk=0", "0 is below 1"),
    ("prefill.chunk=6MiB", "has a unit"),
    ("prefill.chunk=null", "null stands for not stated"),
    ("decode.max_new_tokens=auto", "'auto' is not a number"),
    ("decode.max_new_tokens=false", "False is not a number"),
    ("decode.top_p=1.5", "1.5 is more than 1"),
    ("decode.top_p=-0.1", "-0.1 is negative"),
    ("decode.stop_at_eos=2", "2 is neither true nor false"),
    ("experts.file_io=bufered", "nearest of auto, buffered, direct is buffered"),
    ("model.geometry.rope_sections=5", "5 is not a list"),
    ("model.geometry.rope_sections=[1,-2]", "model.geometry.rope_sections.1: -2 is negative"),
    ("model.source=[a]", "a single value belongs here"),
]


@pytest.mark.parametrize(("override", "why"), REFUSED)
def test_a_wrong_value_is_refused_with_key_value_and_remedy(override: str, why: str) -> None:
    (fault,) = check_overrides([override], None).faults
    assert fault.startswith(override.partition("=")[0])
    assert why in fault and "wanted is" in fault


def test_all_of_them_at_once() -> None:
    assert len(faults(*(override for override, _ in REFUSED))) == len(REFUSED)


def test_the_same_wrong_values_are_refused_in_a_file(tmp_path: Path) -> None:
    text = "hardware: {ram: .nan, cpu: {cores: -.inf}}\ndecode: {max_new_tokens: -3, stop_at_eos: 2}\nmodel: {source: 1e5}"
    with pytest.raises(ConfigError) as error:
        composed_from(tmp_path, text)
    assert [fault.partition(":")[0] for fault in error.value.faults] == [
        "hardware.ram",
        "hardware.cpu.cores",
        "model.source",
        "decode.max_new_tokens",
        "decode.stop_at_eos",
    ]
    assert "in quotes" in error.value.faults[2]


def test_choices_and_switches_become_the_schemas_types() -> None:
    config = compose_config(
        ["hardware.os=windows", "experts.file_io=direct", "experts.verify=yes", "workload.template=none", "results.logits=all"]
    )
    assert (config.hardware.os, config.experts.file_io, config.experts.verify) == (Os.windows, FileIo.direct, True)
    assert (config.workload.template, config.results.logits) == (Template.none, Logits.all)


SPELLINGS = ["1e5", "007", "true", "6_000", "12:30", "0x10", "1.50"]
PATHS = ["C:\\models\\q2", "/m/a b/c.gguf", "%USERPROFILE%\\m", "\\\\server\\share\\m", "relative/m.gguf"]


# model.dense is refused for a model with files
TEXT_KEYS = [leaf.key for leaf in leaves(Config) if leaf.type in (str, str | None) and leaf.key != "model.dense"]


def test_a_text_on_the_command_line_keeps_its_spelling() -> None:
    lines = dict(zip(TEXT_KEYS, [*SPELLINGS, *PATHS], strict=False))
    config = compose_config([f"{key}={text}" for key, text in lines.items()])
    assert len(lines) == len(SPELLINGS) + len(PATHS)
    assert {key: operator.attrgetter(key)(config) for key in lines} == lines


def test_lists_of_sections() -> None:
    config = compose_config(["workload.messages=[{role: system, content: Be brief}, {content: 'Hi, you'}]"])
    assert [(m.role, m.content) for m in config.workload.messages] == [("system", "Be brief"), ("user", "Hi, you")]
    assert faults("workload.messages=[{rle: user}]") == (
        "workload.messages.0.rle: there is no such key, nearest is workload.messages.0.role",
    )


def test_one_element_of_a_list_can_be_overridden() -> None:
    config = compose_config(["workload=chat", "workload.messages.0.content=Hello"])
    assert [(m.role, m.content) for m in config.workload.messages] == [("user", "Hello")]


def test_a_section_as_one_value() -> None:
    config = compose_config(["prefill={chunk: 6_4, order: chunked}", "hardware.gpu={vram: 6GiB}"])
    assert (config.prefill.chunk, config.prefill.order.name, config.hardware.gpu.vram) == (64, "chunked", 6 * GiB)
    assert "is a single value, wanted are its keys (name," in faults("hardware.gpu=5")[0]
