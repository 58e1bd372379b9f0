"""What stands around a run of a bench: the page cache's state, looked at and not assumed, and a ballast that lies before the start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strata_recipes.bench.watchdog import Watchdog
from strata_recipes.config.choices import BenchCache
from strata_recipes.config.compose import compose_config
from strata_recipes.files.residency import cached_bytes
from strata_recipes.machine import ballast, memory
from strata_recipes.modes import bench_run
from strata_recipes.modes.bench_arms import Arm
from strata_recipes.modes.bench_cache import set_cache
from strata_recipes.modes.children import watched
from strata_recipes.units import GiB

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells what the page cache holds")


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Two files of a pack's size in pages; not on a tmpfs, which is the page cache itself."""
    for name, size in (("experts.bin", 1 << 20), ("dense.safetensors", 5000)):
        (tmp_path / name).write_bytes(b"x" * size)
    set_cache(BenchCache.cold, tmp_path)
    if cached_bytes(tmp_path / "experts.bin"):
        pytest.skip("the temporary folder is no drive")
    return tmp_path


@LINUX
def test_cold_is_cold_and_warm_is_warm(pack: Path) -> None:
    assert set_cache(BenchCache.warm, pack) == ((1 << 20) + 5000, None)
    assert cached_bytes(pack / "experts.bin") == 1 << 20
    assert set_cache(BenchCache.asis, pack) == ((1 << 20) + 5000, None)
    assert set_cache(BenchCache.cold, pack) == (0, None)
    assert cached_bytes(pack / "experts.bin") == 0


@LINUX
def test_pages_that_stay_are_told(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_cache(BenchCache.warm, pack)
    monkeypatch.setattr("strata_recipes.modes.bench_cache.drop_cached", lambda path: True)
    held, why = set_cache(BenchCache.cold, pack)
    assert held == (1 << 20) + 5000 and why is not None and "1.0 MiB of the pack stayed in the page cache" in why
    monkeypatch.undo()
    set_cache(BenchCache.cold, pack)
    monkeypatch.setattr("strata_recipes.modes.bench_cache._read", lambda path: None)
    held, why = set_cache(BenchCache.warm, pack)
    assert held == 0 and why is not None and "too little RAM to keep it" in why


class Looking(Watchdog):
    """Leaves a file at each look, for the child to wait for, and bites once the child's words are these."""

    def __init__(self, looked: Path, out: Path, words: str) -> None:
        super().__init__(1 << 60, 0.0)
        self._looked, self._out, self._words = looked, out, words

    def seen(self, seconds: float, available_bytes: int) -> str | None:
        self._looked.touch()
        return super().seen(seconds, available_bytes) if self._words in self._out.read_text(encoding="utf-8") else None


def test_a_child_is_watched_and_its_words_kept(tmp_path: Path) -> None:
    out, looked = tmp_path / "out.txt", tmp_path / "looked"
    ending = (
        f"import os, sys, time\nwhile not os.path.exists({str(looked)!r}):\n    time.sleep(0.01)\nprint('é')\nsys.exit('strata: so it is')"
    )
    ended = watched([sys.executable, "-X", "utf8", "-c", ending], out, Looking(looked, out, "never"))
    assert (ended.exit_code, ended.stopped, ended.last_line) == (1, None, "so it is")
    assert ended.samples and ended.samples[0].available_bytes > 0


@pytest.mark.skipif(sys.platform == "win32", reason="no child can ignore its end there")
def test_a_child_that_ignores_its_end_is_killed(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    forever = "import time, signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    ended = watched([sys.executable, "-c", forever], out, Looking(tmp_path / "looked", out, "up"))
    assert ended.exit_code == -9 and ended.stopped is not None and "available RAM stayed under" in ended.stopped


def arm(ram: str, *more: str) -> Arm:
    return Arm("a", 1, compose_config([f"emulate.ram={ram}", "hardware=rtx3060_6gb", "model.scale_of=null", *more]), ())


@pytest.mark.parametrize(("ram", "free", "held"), [("ballast", 99 * GiB, True), ("ledger", 99 * GiB, False), ("ballast", GiB, False)])
def test_most_of_a_ballast_lies_before_the_run(ram: str, free: int, held: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So that locking it is in no figure. Where less is free than that, the run itself says what is missing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    left: list[int] = []

    @contextmanager
    def leaving(num_bytes: int) -> Iterator[None]:
        left.append(num_bytes)
        yield

    monkeypatch.setattr(ballast, "leaving", leaving)
    monkeypatch.setattr(memory, "available", lambda: memory.Available(free, "the test"))
    with bench_run._stood_in(arm(ram)):
        assert bool(left) == held
    if held:
        # the laptop's 24 GiB, the demo's few MiB of VRAM that stand in RAM here, and 1 GiB of the run's own
        assert 25 * GiB < left[0] < 25 * GiB + (100 << 20)


def test_an_arm_without_a_plan_has_no_ballast_and_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for refused in ("experts.slots=999999", "workload.tokens=9_000"):
        assert bench_run._room_bytes(arm("ballast", refused)) is None
