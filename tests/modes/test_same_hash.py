"""What names a results folder: a resolved config, its replay and what was asked for at first have one hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata_recipes.config.choices import Device
from strata_recipes.config.compose import compose_config, config_hash, resolved_yaml
from strata_recipes.config.schema import Config
from strata_recipes.errors import ConfigError
from strata_recipes.machine import probe
from strata_recipes.machine.gpu import Card
from strata_recipes.machine.probe import resolve_hardware
from strata_recipes.modes import prepare as preparing
from strata_recipes.modes.models import model_facts
from strata_recipes.modes.prepare import Prepared, prepare
from tests.config.test_replay import replayed

CARD = Card("GPU-1", "A card", "9.0", 24 << 30, 20 << 30, 1e12, 1e14, 2e10, ("bandwidth", "flops"))
DECLARED = "model=qwen38_flash_next_q2_0"
ASKED = {
    "this PC": [],
    "this PC, the CPU": ["compute.device=cpu"],
    "a declared PC": ["hardware=rtx3060_6gb"],
    "a declared PC, changed": ["hardware=rtx5090_32gb_windows", "hardware.gpu.free=20GiB", "hardware.ram=48GiB"],
    "no card": ["hardware=cpu", "hardware.cpu.cores=4"],
    "a card of which one thing is stated": ["hardware.gpu.vram=16GiB"],
    "other parts": [DECLARED, "hardware=h200", "workload=prompt_2k", "kv=int8", "prefill=layer_major", "mode=simulate"],
}


def prepared(config: Config) -> Prepared:
    with model_facts(config.model) as facts:
        return prepare(config, facts)


@pytest.fixture(params=[None, CARD], ids=["no card here", "a card here"])
def here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Card | None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    card: Card | None = request.param
    monkeypatch.setattr(preparing, "find_card", lambda: card)
    monkeypatch.setattr(preparing, "_torch_has_cuda", lambda: True)
    monkeypatch.setattr(preparing, "resolve_hardware", lambda *words, **more: resolve_hardware(*words, find=lambda: card, **more))
    monkeypatch.setattr(preparing, "differences", lambda machine: probe.differences(machine, find=lambda: card))
    return card


@pytest.mark.parametrize("words", ASKED.values(), ids=ASKED)
def test_a_resolved_config_and_its_replay_hash_as_what_was_asked_for(words: list[str], here: Card | None, tmp_path: Path) -> None:
    config = compose_config(words)
    once = prepared(config)
    assert once.config.hardware.os is not None and once.config.compute.device is not Device.auto, "resolved: all literal"
    again = replayed(once.config, tmp_path)
    twice = prepared(again)
    assert twice.plan == once.plan and twice.machine == once.machine
    assert resolved_yaml(twice.config) == resolved_yaml(once.config)
    hashes = [config_hash(config), once.folder_hash, config_hash(once.config), config_hash(again), twice.folder_hash]
    assert hashes == hashes[:1] * 5


def test_what_was_asked_for_otherwise_has_another_hash(here: Card | None) -> None:
    hashes = [prepared(compose_config(words)).folder_hash for words in ASKED.values()]
    assert len(set(hashes)) == len(hashes)


def test_a_replay_that_states_what_was_found_is_another_run(here: Card | None, tmp_path: Path) -> None:
    once = prepared(compose_config([]))
    cores = once.config.hardware.cpu.cores
    stated = prepared(replayed(once.config, tmp_path, f"hardware.cpu.cores={cores}"))
    assert stated.plan == once.plan and stated.folder_hash != once.folder_hash
    assert "cpu.cores" in once.machine.probed and "cpu.cores" not in stated.machine.probed
    device = once.config.compute.device.name
    assert prepared(replayed(once.config, tmp_path, f"compute.device={device}")).folder_hash == config_hash(
        compose_config([f"compute.device={device}"])
    )


def test_a_section_that_a_replay_gives_as_a_whole_is_stated(tmp_path: Path) -> None:
    """Else two of them would be one run to sweep.resume."""
    found = compose_config(["hardware=rtx3060_6gb"])
    found.hardware.probed = ["drive.direct", "drive.cached", "gpu.vram"]
    again = [replayed(found, tmp_path, f"hardware.drive={{direct: {rate}}}") for rate in (1_000_000_000, 2_000_000_000)]
    assert [config.hardware.drive.direct for config in again] == [1e9, 2e9]
    assert [config.hardware.probed for config in again] == [["gpu.vram"]] * 2
    assert len({config_hash(config) for config in (found, *again)}) == 3


def test_what_was_found_is_a_key() -> None:
    with pytest.raises(ConfigError, match=r"hardware.probed names gpu.vrom, which no key of the config is"):
        compose_config(["hardware.probed=[ram,gpu.vrom]"])
