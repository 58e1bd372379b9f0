"""Readers held to the rates of another PC's links. The bytes are the same, only later."""

from __future__ import annotations

import mmap
from pathlib import Path

from strata_recipes.files.mapped import MappedFile
from strata_recipes.files.pace import Pace
from strata_recipes.files.source import Bytes, Counters, ExpertFile


class ThrottledFile:
    """An ExpertFile whose every read passes one link."""

    def __init__(self, inner: ExpertFile, link: Pace) -> None:
        self.path: Path = inner.path
        self.size = inner.size
        self.counters = inner.counters
        self._inner = inner
        self._link = link

    def read(self, offset: int, num_bytes: int, out: Bytes) -> None:
        with self._link.passing(num_bytes):
            self._inner.read(offset, num_bytes, out)

    def check(self) -> None:
        self._inner.check()

    def close(self) -> None:
        self._inner.close()


class ThrottledMapping(MappedFile):
    """A mapping whose bytes come over the drive's link, at the rate of page faults, unless the page cache holds them.

    Views go on over `up` where there is such a link. Reading ahead waits too: nothing may come sooner than the drive gives it.
    """

    def __init__(self, path: Path, size: int, drive: Pace, faults: float, up: Pace | None, counters: Counters | None = None) -> None:
        super().__init__(path, size, counters)
        self._drive = drive
        self._faults = faults
        self._up = up
        if self._map is not None and hasattr(mmap, "MADV_RANDOM"):
            self._map.madvise(mmap.MADV_RANDOM)  # the kernel's own read-ahead would bring neighbours in for nothing

    def view(self, offset: int, num_bytes: int) -> Bytes:
        with self._drive.passing(self._missing(offset, num_bytes), self._faults):
            super().will_need(offset, num_bytes)  # this range in large reads, and no byte more
            found = super().view(offset, num_bytes)
            found.max(initial=0)  # brings the pages in now, inside the time that they are given
        if self._up is not None:
            with self._up.passing(num_bytes):
                return found
        return found

    def read(self, offset: int, num_bytes: int, out: Bytes) -> None:
        with self._drive.passing(self._missing(offset, num_bytes), self._faults):
            super().will_need(offset, num_bytes)
            super().read(offset, num_bytes, out)

    def will_need(self, offset: int, num_bytes: int) -> None:
        with self._drive.passing(self._missing(offset, num_bytes), self._faults):
            super().will_need(offset, num_bytes)

    def _missing(self, offset: int, num_bytes: int) -> float:
        return missing_bytes(self, offset, num_bytes)


class ThrottledCached:
    """An ExpertFile over reads through the page cache: what that does not hold comes over the drive's link, at the rate of page faults."""

    def __init__(self, inner: ExpertFile, mapped: MappedFile, drive: Pace, faults: float) -> None:
        """`mapped`: the same file, which knows what the page cache holds, and stays open."""
        self.path: Path = inner.path
        self.size = inner.size
        self.counters = inner.counters
        self._inner, self._mapped, self._drive, self._faults = inner, mapped, drive, faults

    def read(self, offset: int, num_bytes: int, out: Bytes) -> None:
        with self._drive.passing(missing_bytes(self._mapped, offset, num_bytes), self._faults):
            self._inner.read(offset, num_bytes, out)

    def check(self) -> None:
        self._inner.check()

    def close(self) -> None:
        self._inner.close()


def missing_bytes(mapped: MappedFile, offset: int, num_bytes: int) -> float:
    """Bytes of a range that the page cache does not hold; all where the system does not tell."""
    return num_bytes * (1.0 - (mapped.cached_share(offset, num_bytes) or 0.0))
