"""A calibration: what is kept of several rounds, the profile that is written, and that every mode takes it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from strata_recipes.calibrate.hardware_file import MARK, Source, Told, hardware_yaml, startup_yaml
from strata_recipes.calibrate.measured import Measured, agree, interleaved, wins
from strata_recipes.calibrate.probes import DEPTHS, SIZES, direct_key
from strata_recipes.config.choices import ModeName
from strata_recipes.config.compose import compose_config
from strata_recipes.errors import ConfigError
from strata_recipes.modes.entry import main
from strata_recipes.units import MiB

OWN = (32 * MiB, 6)
SOURCE = Source("strata mode=calibrate calibrate.name=mine", "2026-11-30")
TOLD = Told("linux", 32 << 30, 8, ("NVIDIA GeForce RTX 4090", "8.9", 24 << 30))


def found(**more: tuple[float, ...]) -> dict[str, Measured]:
    """Every key that a PC with a card gives; direct reads all alike but for `more`."""
    keys = {direct_key(size, depth): (2.0e9, 2.1e9, 2.2e9) for size in SIZES for depth in DEPTHS}
    keys |= {"drive.faults": (9e8, 1e9, 8e8), "drive.cached": (9e9, 8e9, 7e9), "cpu.bandwidth": (3e10, 3.1e10), "cpu.flops": (1e11, 1e11)}
    keys |= {"gpu.pcie": (2.5e10, 2.5e10), "gpu.pcie pageable": (9e9, 9e9), "gpu.bandwidth": (9e11, 9e11), "gpu.flops": (1.5e14, 1.5e14)}
    return {key: Measured(values) for key, values in (keys | more).items()}


def test_what_is_kept_of_the_rounds() -> None:
    one, other = Measured((3.0, 1.0, 2.0)), Measured((8.0, 9.0, 10.0, 7.0))
    assert (one.median, one.spread, other.median, other.spread) == (2.0, 2.0, 8.5, 3.0)
    assert wins(other, one) and not wins(one, other) and not agree(one, other)
    assert agree(one, Measured((5.0, 7.0, 9.0))), "5 apart, spreads 2 and 4"
    order: list[str] = []
    values = iter(range(100))

    def probe(name: str) -> float:
        order.append(name)
        return float(next(values))

    measured = interleaved({"a": lambda: probe("a"), "b": lambda: probe("b")}, 3)
    assert order == ["a", "b"] * 3 and measured == {"a": Measured((0.0, 2.0, 4.0)), "b": Measured((1.0, 3.0, 5.0))}


def test_two_calibrations_of_one_pc_agree_within_their_spread() -> None:
    """A PC whose every round is off by some 10 %: of 500 pairs of 5 rounds each, all but a few agree; a quarter of the speed never."""
    rng = np.random.default_rng(7)

    def calibrated(rate: float) -> Measured:
        return Measured(tuple(rate * rng.lognormal(0.0, 0.1, 5)))

    assert sum(agree(calibrated(1e9), calibrated(1e9)) for _ in range(500)) >= 495
    assert sum(agree(calibrated(1e9), calibrated(2.5e8)) for _ in range(500)) == 0


def test_the_profile_composes_and_each_number_has_its_command_and_day(tmp_path: Path) -> None:
    text = hardware_yaml("mine", TOLD, found(), OWN, SOURCE)
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "mine.yaml").write_text(text)
    hardware = compose_config(["hardware=mine"], str(tmp_path)).hardware
    assert (hardware.drive.direct, hardware.drive.faults, hardware.drive.cached) == (2.1e9, 9e8, 8e9)
    assert (hardware.cpu.cores, hardware.cpu.bandwidth, hardware.cpu.flops) == (8, 3.05e10, 1e11)
    assert (hardware.gpu.vram, hardware.gpu.pcie, hardware.gpu.capability) == (24 << 30, 2.5e10, "8.9")
    assert (hardware.ram, hardware.available, hardware.gpu.free) == (32 << 30, None, None), "what is free is looked up each time"
    numbers = [line for line in text.splitlines() if re.search(r": \d", line.partition("#")[0])]
    assert len(numbers) == 11
    assert all("2026-11-30, strata mode=calibrate calibrate.name=mine" in line.partition("#")[2] for line in numbers)
    assert all(re.search(r"median of \d, \S+ to \S+;|told by the system", line) for line in numbers)
    without = {key: measured for key, measured in found().items() if not key.startswith(("drive", "gpu"))}
    bare = hardware_yaml("mine", Told("windows", 1, 1, None), without, OWN, SOURCE)
    assert yaml.safe_load(bare)["gpu"] == {"vram": 0} and "drive" not in yaml.safe_load(bare)
    assert startup_yaml(without, OWN, SOURCE) is None


def test_a_setting_is_kept_only_where_it_wins_by_more_than_the_spread(tmp_path: Path) -> None:
    assert startup_yaml(found(), OWN, SOURCE) is None
    better, near = direct_key(4 * MiB, 2), (2.3e9, 2.3e9, 2.3e9)
    assert startup_yaml(found(**{better: near}), OWN, SOURCE) is None, "0.2 above, and the own rounds are 0.2 apart"
    text = startup_yaml(found(**{better: (2.5e9, 2.5e9, 2.5e9)}), OWN, SOURCE)
    assert text is not None and "2.50 GB/s against 2.10 GB/s with 32 MiB and 6 threads" in text
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup" / "mine.yaml").write_text(text)
    startup = compose_config(["startup=mine"], str(tmp_path)).startup
    assert (startup.merge, startup.threads, startup.fill_batch) == (4 * MiB, 2, 64)


def test_the_mode_writes_what_every_mode_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = [
        "mode=calibrate",
        "calibrate.name=mine",
        "calibrate.rounds=2",
        "calibrate.file_bytes=64MiB",
        f"results.root={tmp_path}/results",
    ]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "use it: hardware=mine" in said and "before" not in said
    written = tmp_path / "own" / "strata_recipes" / "hardware" / "mine.yaml"
    first = yaml.safe_load(written.read_text())
    assert written.read_text().startswith(MARK) and all(rate > 0 for rate in first["drive"].values())
    needs = {ModeName.bench: ["bench.arms.a=[]", "bench.arms.b=[startup=mapped]"], ModeName.reproduce: ["result=somewhere"]}
    for mode in ModeName:
        hardware = compose_config(["hardware=mine", f"mode={mode.value}", *needs.get(mode, [])]).hardware
        assert hardware.drive.direct == float(first["drive"]["direct"]) and hardware.name == "mine"
    assert main(["mode=plan", "hardware=mine", f"results.root={tmp_path}/results"]) == 0
    assert main([*words, "calibrate.name=cpu"]) == 2
    assert "calibrate.name=cpu is a profile that is shipped" in capsys.readouterr().err
    written.write_text("name: by_hand\n")
    assert main(words) == 3
    assert "was not written by mode=calibrate: it stays" in capsys.readouterr().err


def test_the_users_folder_adds_options_and_changes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="hardware=mine: there is no such option"):
        compose_config(["hardware=mine"])
    folder = tmp_path / "strata_recipes" / "hardware"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("name: mine\nram: 3GiB\n")
    (folder / "h200.yaml").write_text("name: another\nram: 3GiB\n")
    assert compose_config(["hardware=mine"]).hardware.ram == 3 << 30
    assert compose_config(["hardware=h200"]).hardware.name == "h200"
