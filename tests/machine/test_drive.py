"""The drive probe: it leaves nothing behind, gives way where it cannot probe, and remembers for a day."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from strata_recipes.machine import drive, rates_cache
from strata_recipes.machine.drive import ASSUMED_DIRECT, Rates, existing_folder, probe_drive
from strata_recipes.machine.rates_cache import remember, remembered


def test_a_probe_leaves_no_file(tmp_path: Path) -> None:
    rates = probe_drive(tmp_path)
    assert min(rates.direct, rates.faults, rates.cached) > 1e6
    assert list(tmp_path.iterdir()) == []


def test_a_big_file_is_read_and_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive, "TEMPORARY_BYTES", 5 << 20)
    big = tmp_path / "big"
    big.write_bytes(os.urandom(6 << 20))
    before = big.read_bytes()
    assert probe_drive(tmp_path).assumed == ()
    assert big.read_bytes() == before and list(tmp_path.iterdir()) == [big]


def test_where_nothing_can_be_probed_the_rates_are_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", refuse)
    rates = probe_drive(tmp_path)
    assert rates.direct == ASSUMED_DIRECT and rates.assumed == ("direct", "faults", "cached")


def test_a_folder_that_is_not_there_yet_is_its_parents_drive(tmp_path: Path) -> None:
    assert existing_folder(tmp_path / "a" / "b") == tmp_path


def test_rates_are_remembered_for_their_drive_and_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = Rates(3e9, 1e9, 9e9, ())
    remember(tmp_path, 7, rates)
    assert remembered(tmp_path, 7) == rates
    assert remembered(tmp_path, 8) is None
    written = json.loads((tmp_path / "drive-7.json").read_text())["at"]
    monkeypatch.setattr("time.time", lambda: written + rates_cache.LIFETIME_S + 1)
    assert remembered(tmp_path, 7) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"at": 1}', '{"at": 0, "direct": "x", "faults": 1, "cached": 1}'])
def test_a_damaged_record_is_probed_again(tmp_path: Path, text: str) -> None:
    (tmp_path / "drive-7.json").write_text(text)
    assert remembered(tmp_path, 7) is None


def test_a_cache_that_cannot_be_written_does_not_stop(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    remember(tmp_path / "file", 7, Rates(1.0, 1.0, 1.0, ()))
    assert remembered(tmp_path / "file", 7) is None
