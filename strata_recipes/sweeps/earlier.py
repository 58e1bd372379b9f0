"""Folders of runs that are done already, found by the hash of their config. Starts nothing."""

from __future__ import annotations

import re
from pathlib import Path

from strata_recipes.results.status import State, read_status

_DEPTHS = ("*", "*/*")  # a single run lies two folders below the root, a sweep's job three


def done_folder(root: Path, config_hash: str) -> Path | None:
    """The newest folder below the results root that holds this config's results; None where there is none."""
    name = re.compile(rf".*_{config_hash}(_\d+)?")
    found = [path for depth in _DEPTHS for path in root.glob(f"{depth}/*_{config_hash}*") if name.fullmatch(path.name)]
    done = [path for path in found if (status := read_status(path)) is not None and status.state is State.done]
    return max(done, key=lambda path: ((path / "status.json").stat().st_mtime, path.name), default=None)
