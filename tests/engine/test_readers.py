"""Reads into place as a plan asks for them: the links that they pass, and the file that they must be of."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from strata_recipes.engine.readers import READS_AT_ONCE, Readers
from strata_recipes.errors import FileError
from strata_recipes.files.residency import drop_cached
from strata_recipes.plan.plan import Throttle

SIZE = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "experts.bin"
    path.write_bytes(os.urandom(SIZE))
    return path


def readers(path: Path, held: Throttle | None) -> Readers:
    plan: Any = SimpleNamespace(throttle=held)
    pack: Any = SimpleNamespace(experts_path=path, index=SimpleNamespace(experts_file_bytes=SIZE))
    return Readers(plan, pack, print)


@pytest.mark.parametrize("pcie", [None, 8e7])
def test_what_the_cache_lacks_passes_the_drive_and_all_goes_up(pcie: float | None, path: Path) -> None:
    ways = readers(path, Throttle(direct=8e7, faults=4e7, pcie=pcie))
    data, mapped = path.read_bytes(), ways.mapped()
    assert drop_cached(path) and ways.drive is not None
    reads = ways.at_once(mapped)
    asked = [(at << 16, np.zeros(1 << 16, np.uint8)) for at in range(5)]
    for cold in (True, False):
        before = ways.drive.busy_s
        reads.read(asked)
        assert ways.drive.busy_s - before == pytest.approx(cold * 5 * 65536 / 4e7)
        assert all(place.tobytes() == data[offset : offset + 65536] for offset, place in asked)
    assert (None if ways.up is None else ways.up.busy_s) == (None if pcie is None else pytest.approx(2 * 5 * 65536 / pcie))
    assert mapped.counters.bytes_read == 2 * 5 * 65536
    reads.close()
    mapped.close()


def test_nothing_is_asked_about_the_cache_where_no_link_is_held(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = readers(path, None)
    mapped = ways.mapped()
    monkeypatch.setattr(type(mapped), "cached_share", None)
    before = set(os.listdir("/proc/self/fd"))
    reads = ways.at_once(mapped)
    assert len(set(os.listdir("/proc/self/fd")) - before) == READS_AT_ONCE
    place = np.zeros(SIZE, np.uint8)
    reads.read([(0, place)])
    assert place.tobytes() == path.read_bytes()
    reads.close()
    mapped.close()


def test_another_file_in_its_place_is_refused(path: Path) -> None:
    ways = readers(path, None)
    mapped = ways.mapped()
    path.with_name("new").write_bytes(path.read_bytes())
    os.replace(path.with_name("new"), path)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(FileError, match="was replaced while in use"):
        ways.at_once(mapped)
    assert set(os.listdir("/proc/self/fd")) == before
    mapped.close()
