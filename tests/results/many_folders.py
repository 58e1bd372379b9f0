"""What one of several processes does in the test of folders made at once; apart, so that a process need not import the tests."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from strata_recipes.results.record import ResultsFolder


def make_many(root: str, now: datetime, barrier, names) -> None:
    """Five folders of one name, as soon as all processes are ready."""
    barrier.wait()
    for _ in range(5):
        names.put(ResultsFolder.make(Path(root), "run", "0a1b2c3d", now).path.name)
