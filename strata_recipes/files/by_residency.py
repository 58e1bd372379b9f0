"""Reads each range from where it is: what the page cache mostly holds is copied out of it, the rest is read past it.

So a long prompt does not push out what decode reads again and again. Does not know prompts.
"""

from __future__ import annotations

from pathlib import Path

from strata_recipes.files.mapped import MappedFile
from strata_recipes.files.source import Bytes, Counters, ExpertFile


class ByResidency:
    """An ExpertFile over a mapping and a direct reader of the same file. The reader is closed with it, the mapping is its owner's."""

    def __init__(self, mapped: MappedFile, direct: ExpertFile, cached_min: float) -> None:
        self.path: Path = mapped.path
        self.size = mapped.size
        self.counters = Counters()
        self.cached_reads = Counters()  # of them, those out of the page cache
        self._mapped = mapped
        self._direct = direct
        self._cached_min = cached_min

    def read(self, offset: int, num_bytes: int, out: Bytes) -> None:
        with self.counters.reading(num_bytes):
            share = self._mapped.cached_share(offset, num_bytes)
            if share is not None and share >= self._cached_min:
                with self.cached_reads.reading(num_bytes):
                    self._mapped.read(offset, num_bytes, out)
            else:
                self._direct.read(offset, num_bytes, out)

    def check(self) -> None:
        self._mapped.check()

    def close(self) -> None:
        self._direct.close()


class ThroughCache:
    """An ExpertFile that copies out of a mapping, which its owner closes."""

    def __init__(self, mapped: MappedFile) -> None:
        self.path: Path = mapped.path
        self.size = mapped.size
        self.counters = Counters()
        self._mapped = mapped

    def read(self, offset: int, num_bytes: int, out: Bytes) -> None:
        with self.counters.reading(num_bytes):
            self._mapped.read(offset, num_bytes, out)

    def check(self) -> None:
        self._mapped.check()

    def close(self) -> None:
        """There is nothing of its own."""
