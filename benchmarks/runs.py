"""Whole runs as children of a benchmark: each from the command line, its folder and figures afterwards. Knows no benchmark's question."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strata_recipes.machine.limited import LimitedGroup

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Run:
    """What one run left."""

    folder: Path
    metrics: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        """A figure by its dotted name."""
        found: Any = self.metrics
        for name in key.split("."):
            found = found[name]
        return found

    @property
    def plan(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "plan.json").read_text(encoding="utf-8")))


def run(overrides: Sequence[str], root: Path, group: LimitedGroup | None = None) -> Run:
    """One `run.py`, in a control group where one is given; its results under `root`. SystemExit with what it said where it fails."""
    before = set(root.glob("*/*"))
    command = [sys.executable, str(ROOT / "run.py"), *overrides, f"results.root={root}"]
    done = subprocess.run(
        command if group is None else group.command(command), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    made = sorted(set(root.glob("*/*")) - before)
    if done.returncode or len(made) != 1:
        raise SystemExit(f"{' '.join(overrides)} ended with {done.returncode} and {len(made)} folders:\n{done.stderr[-3000:]}")
    return Run(made[0], json.loads((made[0] / "metrics.json").read_text(encoding="utf-8")))
