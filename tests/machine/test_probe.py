"""Open facts are filled from this PC, stated ones stay, and a second look finds nothing to probe."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata_recipes.config.choices import Os
from strata_recipes.config.compose import compose_config
from strata_recipes.config.schema import Cpu, Drive, Gpu, Hardware
from strata_recipes.errors import ConfigError
from strata_recipes.machine import probe
from strata_recipes.machine.drive import Rates
from strata_recipes.machine.gpu import Card
from strata_recipes.machine.probe import differences, machine_of, resolve_hardware
from strata_recipes.units import GiB, MiB
from tests.machine.fake_root import FakeRoot

CARD = Card("GPU-1", "NVIDIA GeForce RTX 4090", "8.9", 24 * GiB, 20 * GiB, 1e12, 1.6e14, 2.5e10, ("pcie",))


def no_card() -> Card | None:
    return None


def card() -> Card | None:
    return CARD


def forbidden() -> Card | None:
    raise AssertionError("the GPU was probed")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(probe, "_drive_rates", lambda folder: Rates(3e9, 1e9, 9e9, ()))
    return FakeRoot(tmp_path).path


def test_all_of_a_pc_without_a_gpu_is_probed(root: Path) -> None:
    found, machine = resolve_hardware(Hardware(), root, no_card, root)
    assert machine.gpu is None and found.gpu.vram == 0
    assert (machine.ram_bytes, machine.ram_available_bytes) == (64 * GiB, 34 * GiB)
    assert machine.drive.direct == 3e9
    assert {"os", "ram", "available", "cpu.cores", "gpu.vram", "drive.direct", "cpu.flops (estimated)"} <= machine.probed


def test_a_card_is_probed_and_its_guesses_marked(root: Path) -> None:
    _, machine = resolve_hardware(Hardware(), root, card, root)
    assert machine.gpu is not None
    assert (machine.gpu.name, machine.gpu.free_bytes, machine.gpu.vram_bytes) == (CARD.name, 20 * GiB, 24 * GiB)
    assert "gpu.free" in machine.probed and "gpu.pcie (estimated)" in machine.probed


@pytest.mark.parametrize("find", [no_card, card])
def test_a_second_look_probes_nothing_and_gives_the_same_machine(root: Path, find: object, monkeypatch: pytest.MonkeyPatch) -> None:
    first, machine = resolve_hardware(Hardware(), root, find, root)  # type: ignore[arg-type]
    for name in ("available", "total", "usable_cores", "copy_bandwidth", "_drive_rates"):
        monkeypatch.setattr(probe, name, lambda *_: pytest.fail("probed again"))
    second, again = resolve_hardware(first, root, forbidden, root)
    assert (second, again) == (first, machine)


def test_stated_facts_stay_and_the_input_is_not_touched(root: Path) -> None:
    asked = Hardware(ram=8 * GiB, cpu=Cpu(cores=3))
    found, machine = resolve_hardware(asked, root, no_card, root)
    assert machine.ram_available_bytes == 8 * GiB  # not more than the stated RAM, though 34 GiB are free
    assert machine.cpu.cores == 3 and "cpu.cores" not in machine.probed
    assert asked == Hardware(ram=8 * GiB, cpu=Cpu(cores=3)) and found is not asked


def test_vram_stated_without_a_card_stays_stated(root: Path) -> None:
    _, machine = resolve_hardware(Hardware(gpu=Gpu(vram=64 * MiB)), root, no_card, root)
    assert machine.gpu is not None and (machine.gpu.vram_bytes, machine.gpu.free_bytes) == (64 * MiB, 64 * MiB)
    assert not {"gpu.vram", "gpu.free", "gpu.name"} & machine.probed
    assert "gpu.bandwidth (estimated)" in machine.probed


def test_vram_stated_below_a_cards_own_is_the_limit(root: Path) -> None:
    _, machine = resolve_hardware(Hardware(gpu=Gpu(vram=6 * GiB)), root, card, root)
    assert machine.gpu is not None and (machine.gpu.free_bytes, machine.gpu.name) == (6 * GiB, CARD.name)


def test_vram_0_goes_without_the_card(root: Path) -> None:
    _, machine = resolve_hardware(Hardware(gpu=Gpu(vram=0)), root, forbidden, root)
    assert machine.gpu is None


PROFILES = ("rtx3060_6gb", "rtx5090_32gb_windows", "rtx5090_128gb_windows", "rtx5070_12gb", "rtx4090_24gb_32gb", "h200")


@pytest.mark.parametrize("name", PROFILES)
def test_a_declared_profile_needs_no_probe(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("available", "total", "usable_cores", "copy_bandwidth", "_drive_rates"):
        monkeypatch.setattr(probe, part, lambda *_: pytest.fail("probed"))
    found, machine = resolve_hardware(compose_config([f"hardware={name}"]).hardware, root, forbidden, root)
    assert machine.probed == frozenset() and machine.name == name
    assert machine.gpu is not None and machine.gpu.free_bytes <= machine.gpu.vram_bytes
    assert machine.ram_available_bytes < machine.ram_bytes
    assert resolve_hardware(found, root, forbidden, root)[1] == machine


def test_the_profiles_hold_the_published_figures() -> None:
    seed, laptop = (compose_config([f"hardware={name}"]).hardware for name in ("rtx5090_32gb_windows", "rtx3060_6gb"))
    assert (seed.os, seed.ram, seed.available, seed.gpu.reserve) == (Os.windows, 32 * GiB, 21 * GiB, 1500 * MiB)
    assert (seed.gpu.capability, seed.gpu.vram, seed.drive.direct, seed.drive.cached) == ("12.0", 32 * GiB, 6.9e9, 3.7e9)
    assert (laptop.os, laptop.ram, laptop.gpu.vram, laptop.gpu.reserve) == (Os.linux, 27 * GiB, 6 * GiB, 650 * MiB)
    assert (laptop.gpu.capability, laptop.drive.direct, laptop.drive.faults) == ("8.6", 3.5e9, 0.34e9)


def test_a_missing_fact_is_named() -> None:
    with pytest.raises(ConfigError, match=r"hardware\.os is not known"):
        machine_of(Hardware(gpu=Gpu(vram=0)))


def test_differences_name_what_is_another_pcs(root: Path) -> None:
    _, machine = resolve_hardware(compose_config(["hardware=rtx5090_32gb_windows"]).hardware, root, forbidden, root)
    found = differences(machine, no_card, root)
    assert {"os", "ram", "gpu.name", "gpu.vram", "drive.direct", "gpu.pcie"} <= set(found)


def test_this_pc_differs_in_nothing(root: Path) -> None:
    for find in (no_card, card):
        _, machine = resolve_hardware(Hardware(), root, find, root)
        assert differences(machine, find, root) == ()


def test_a_stated_vram_is_a_difference(root: Path) -> None:
    hardware = Hardware(gpu=Gpu(vram=6 * GiB), drive=Drive(direct=2e9))
    _, machine = resolve_hardware(hardware, root, card, root)
    assert differences(machine, card, root) == ("gpu.vram",)
