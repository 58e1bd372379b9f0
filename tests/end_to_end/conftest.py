"""Runs of the whole program, in this process (where a test counts lines) or in one of its own (where it counts what a user sees)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.end_to_end.forked_runs import fork_or_start

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"


@dataclass(frozen=True)
class Done:
    """What a run left: exit code, both streams, and its newest results folder."""

    code: int
    out: str
    err: str
    root: Path

    @property
    def last_line(self) -> str:
        return (self.err.strip() or self.out.strip()).splitlines()[-1]

    @property
    def folders(self) -> list[Path]:
        return sorted(self.root.glob("*/*/status.json")) if self.root.exists() else []

    @property
    def folder(self) -> Path:
        (status,) = self.folders
        return status.parent

    def json(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.folder / name).read_text()))


Strata = Callable[..., Done]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all, so that a model is packed once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def strata(cache: Path, tmp_path: Path) -> Strata:
    """`strata(*words, cwd=...)`: run.py in a process of its own, results below a fresh folder."""

    def run(*words: str, cwd: Path = ROOT, env: dict[str, str] | None = None, root: str = "results", timeout: float = 600) -> Done:
        place = tmp_path / root
        command = [sys.executable, str(ROOT / "run.py"), *words, f"results.root={place}"]
        environment = os.environ | {"XDG_CACHE_HOME": str(cache)} | (env or {})
        done = subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, encoding="utf-8", stdin=subprocess.DEVNULL, timeout=timeout
        )
        return Done(done.returncode, done.stdout, done.stderr, place)

    return run


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs that a bench or a reproduction starts are forks: for tests of what is made of them."""
    monkeypatch.setattr("strata_recipes.modes.children.subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": fork_or_start}))


@pytest.fixture
def inside(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Strata:
    """The same in this process: no second for imports."""
    from strata_recipes.modes.entry import main

    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))

    def run(*words: str, root: str = "results") -> Done:
        place = tmp_path / root
        code = main([*words, f"results.root={place}"])
        out, err = capsys.readouterr()
        return Done(code, out, err, place)

    return run
