"""Opens the experts file each way that a plan may ask for, held to the planned links where it says so. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable

from strata_recipes.files.at_once import ReadsAtOnce
from strata_recipes.files.buffered import BufferedFile
from strata_recipes.files.by_residency import ByResidency, ThroughCache
from strata_recipes.files.direct import open_direct
from strata_recipes.files.mapped import MappedFile
from strata_recipes.files.pace import Pace
from strata_recipes.files.source import Counters, ExpertFile, check_same
from strata_recipes.files.throttled import ThrottledCached, ThrottledFile, ThrottledMapping
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.plan import Plan

READS_AT_ONCE = 16  # a layer's choice of 10, and of drafted rows some more


class Readers:
    """One pack's readers, which share its links: the drive, and `up` to a planned card."""

    def __init__(self, plan: Plan, pack: Pack, note: Callable[[str], None]) -> None:
        held = plan.throttle
        self.drive = None if held is None else Pace(held.direct)
        self.up = None if held is None or held.pcie is None else Pace(held.pcie)
        self._faults = 0.0 if held is None else held.faults
        self._path, self._size = pack.experts_path, pack.index.experts_file_bytes
        self._note = note

    def mapped(self, counters: Counters | None = None) -> MappedFile:
        """Views and copies of a mapping; `counters`: those of the mapping that it follows."""
        if self.drive is None:
            return MappedFile(self._path, self._size, counters)
        return ThrottledMapping(self._path, self._size, self.drive, self._faults, self.up, counters)

    def held(self, file: ExpertFile) -> ExpertFile:
        """A reader past the page cache that was opened elsewhere, held to the drive."""
        return file if self.drive is None else ThrottledFile(file, self.drive)

    def direct(self) -> ExpertFile:
        """Reads past the page cache, on their way to a card where one is planned."""
        return self._upward(self._direct())

    def through_cache(self, mapped: MappedFile) -> ExpertFile:
        """Copies of a mapping that stays open."""
        return self._upward(ThroughCache(mapped))

    def by_residency(self, mapped: MappedFile, cached_min: float) -> ExpertFile:
        """Copies of a mapping that stays open where the page cache holds them, else reads past it."""
        return self._upward(ByResidency(mapped, self._direct(), cached_min))

    def at_once(self, mapped: MappedFile) -> ReadsAtOnce:
        """Reads through the page cache into place, beside a mapping that stays open, and counted with it."""
        return ReadsAtOnce(lambda: self._upward(self._apart(mapped)), READS_AT_ONCE)

    def _apart(self, mapped: MappedFile) -> ExpertFile:
        file = BufferedFile(self._path, self._size, apart=True, counters=mapped.counters)
        try:
            check_same(self._path, mapped.identity, file.identity)
        except BaseException:
            file.close()
            raise
        return file if self.drive is None else ThrottledCached(file, mapped, self.drive, self._faults)

    def _direct(self) -> ExpertFile:
        return self.held(open_direct(self._path, self._size, self._note))

    def _upward(self, file: ExpertFile) -> ExpertFile:
        return file if self.up is None else ThrottledFile(file, self.up)
