"""The direct reader of this system. Does not know when direct reads are wanted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from strata_recipes.files.source import ExpertFile, Identity


class DirectReader(ExpertFile, Protocol):
    """An ExpertFile past the page cache. `refused`: the first reason for which a range was read through it after all."""

    refused: str | None

    @property
    def identity(self) -> Identity:
        """Of the file that was opened."""


def open_direct(path: Path, size: int, note: Callable[[str], None] | None = None) -> DirectReader:
    """A file read past the page cache; `note` is told once where the cache must help after all."""
    if sys.platform == "win32":
        from strata_recipes.files.unbuffered_windows import DirectFile as Direct
    else:
        from strata_recipes.files.unbuffered_linux import DirectFile as Direct
    return Direct(path, size, note=note)
