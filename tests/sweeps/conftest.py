"""Sweeps of the whole program: the command line here, each job in a process of its own, as a user has it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Swept:
    """What a sweep left: exit code, both streams, its folder."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def summary(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "sweep.json").read_text(encoding="utf-8")))

    @property
    def counts(self) -> dict[str, int]:
        names = ("planned", "done", "resumed", "refused", "failed", "stopped", "missing")
        return {name: self.summary[name] for name in names if self.summary[name]}

    @property
    def jobs(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text(encoding="utf-8")) for path in sorted((self.folder / "jobs").iterdir())]

    @property
    def states(self) -> list[str]:
        return [job["status"]["state"] for job in self.jobs]

    @property
    def long(self) -> list[dict[str, str]]:
        with (self.folder / "summary.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


Sweep = Callable[..., Swept]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def sweep(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Sweep:
    """`sweep(*words, name=...)` plans below tmp_path/results, in the folder of that name."""
    from strata_recipes.modes.entry import main

    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.chdir(tmp_path)

    def run(*words: str, name: str = "one", flag: str = "-m") -> Swept:
        root = tmp_path / "results"
        places = (f"results.root={root}", f"hydra.sweep.dir={root}/multirun/{name}")
        code = main([flag, "mode=plan", *words, *places] if flag else ["mode=plan", *words, *places])
        out, err = capfd.readouterr()
        return Swept(code, out, err, root / "multirun" / name)

    return run
