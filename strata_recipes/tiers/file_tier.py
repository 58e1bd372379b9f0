"""The experts that no memory holds, read from the file: as views of its mapping, or through the stager. Knows no other tier."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Protocol

import numpy as np

from strata_recipes.files.at_once import ReadsAtOnce
from strata_recipes.files.mapped import MappedFile
from strata_recipes.files.source import Bytes, ExpertFile
from strata_recipes.pack.index import PackIndex
from strata_recipes.tiers.blobs import read_only
from strata_recipes.tiers.stager import Job, Stager

BLOBS_AHEAD = 16  # of a mapping: a token's choice, so that the drive has it all to do at once


class Visit(Protocol):
    """The file-tier experts of one visit, in the order asked."""

    def next_blob(self) -> Bytes:
        """The next expert's blob, valid until the next call."""

    def close(self) -> None:
        """Ends the visit, whether all was used or not."""


class FileTier(Protocol):
    """How experts in the file are read."""

    def visit(self, layer: int, experts: Sequence[int]) -> Visit:
        """Asks for one layer's experts; reading starts now where it can run ahead."""

    def read(self, layer: int, experts: Sequence[int], places: Sequence[Bytes]) -> None:
        """One layer's blobs into places of at least their size. All are there when this returns."""

    def check(self) -> None:
        """FileError if the file is no longer the one that was opened."""

    def close(self) -> None:
        """Ends reading and gives the file back."""


class MappedTier:
    """Blobs as views of the mapping: the page cache is the RAM tier. `at_once` reads the same file into places, beside the mapping:
    threads that copied out of it would wait for each fault."""

    def __init__(self, file: MappedFile, index: PackIndex, at_once: ReadsAtOnce | None = None) -> None:
        self._file = file
        self._index = index
        self._at_once = at_once

    def will_need(self, offset: int, num_bytes: int) -> None:
        """Has the kernel read a range ahead."""
        self._file.will_need(offset, num_bytes)

    def cached_share(self, offset: int, num_bytes: int) -> float | None:
        """Of a range in the page cache; None where that is not known."""
        return self._file.cached_share(offset, num_bytes)

    def visit(self, layer: int, experts: Sequence[int]) -> Visit:
        return _MappedVisit(self._file, [self._index.offset(layer, expert) for expert in experts], self._index.layers[layer].blob_bytes)

    def read(self, layer: int, experts: Sequence[int], places: Sequence[Bytes]) -> None:
        if self._at_once is None:
            _copy_out(self.visit(layer, experts), places)
            return
        size = self._index.layers[layer].blob_bytes
        self._at_once.read([(self._index.offset(layer, expert), place[:size]) for expert, place in zip(experts, places, strict=True)])

    def check(self) -> None:
        self._file.check()

    def close(self) -> None:
        if self._at_once is not None:
            self._at_once.close()
        self._file.close()


class _MappedVisit:
    """The kernel is asked for whole blobs ahead of their use. A fault alone reads around itself: a CPU's reply over a cold file was seen
    to read twice the bytes that were wanted. What is cached is asked for too: to look first takes longer."""

    def __init__(self, file: MappedFile, offsets: list[int], num_bytes: int) -> None:
        self._file = file
        self._offsets = offsets
        self._num_bytes = num_bytes
        self._asked = self._used = 0
        self._ask(BLOBS_AHEAD)

    def next_blob(self) -> Bytes:
        self._used += 1
        self._ask(self._used + BLOBS_AHEAD)
        return self._file.view(self._offsets[self._used - 1], self._num_bytes)

    def close(self) -> None:
        """What was asked for goes on; it is read into the page cache, not into memory of ours."""

    def _ask(self, until: int) -> None:
        for offset in self._offsets[self._asked : until]:
            self._file.will_need(offset, self._num_bytes)
        self._asked = max(self._asked, until)


class StagedTier:
    """Blobs through the stager: whole strides, submitted ahead of use, read as far ahead as its buffers allow."""

    def __init__(self, file: ExpertFile, stager: Stager, index: PackIndex) -> None:
        self.file = file
        self.stager = stager
        self._index = index

    def visit(self, layer: int, experts: Sequence[int]) -> Visit:
        at = self._index.layers[layer]
        jobs = [self.stager.submit(self._index.offset(layer, expert), at.stride) for expert in experts]
        return StagedVisit(self.stager, at.blob_bytes, jobs)

    def read(self, layer: int, experts: Sequence[int], places: Sequence[Bytes]) -> None:
        _copy_out(self.visit(layer, experts), places)

    def check(self) -> None:
        self.file.check()

    def close(self) -> None:
        self.stager.close()
        self.file.close()


class StagedVisit:
    """Blobs of `num_bytes` out of the stager's buffers, in the order of their jobs."""

    def __init__(self, stager: Stager, num_bytes: int, jobs: Sequence[Job]) -> None:
        self._stager = stager
        self._num_bytes = num_bytes
        self._jobs = jobs
        self._used = 0

    def next_blob(self) -> Bytes:
        if self._used:
            self._stager.release(self._jobs[self._used - 1])
        job = self._jobs[self._used]
        self._used += 1
        return read_only(self._stager.take(job)[: self._num_bytes])

    def close(self) -> None:
        for job in self._jobs[max(0, self._used - 1) :]:
            self._stager.skip(job)


def _copy_out(visit: Visit, places: Sequence[Bytes]) -> None:
    with closing(visit):
        for place in places:
            blob = visit.next_blob()
            np.copyto(place[: blob.size], blob)
