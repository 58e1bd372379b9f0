"""A start in simulated time: the process, dense weights, then the fill and the copy by either strategy. Reads no clock."""

from __future__ import annotations

from dataclasses import dataclass

from strata_recipes.machine.facts import Machine
from strata_recipes.simulate.line import line_ends
from strata_recipes.simulate.load import StartLoad


@dataclass(frozen=True)
class StartTimes:
    """Parts of a start in their order; the drive's and link's seconds in them."""

    launch_s: float
    dense_s: float
    purge_s: float
    fill_s: float
    copy_s: float
    drive_s: float
    link_s: float
    cache_s: float
    drive_bytes: float

    @property
    def moved_s(self) -> float:
        """Of the experts alone: what a strategy decides."""
        return self.purge_s + self.fill_s + self.copy_s

    @property
    def ready_s(self) -> float:
        return self.launch_s + self.dense_s + self.moved_s


def startup(machine: Machine, load: StartLoad, dense_bytes: int) -> StartTimes:
    """Mapped: cached pages by a copy, the rest by page faults, then over the link, one after the other.

    Unbuffered: every byte by direct reads, cached or not; while a fill batch is copied the next is read. The RAM copy's pages are
    touched first, so that its reads land in place.
    """
    drive, ram = machine.drive, 1 / machine.cpu.bandwidth
    link = ram if machine.gpu is None else 1 / machine.gpu.pcie
    dense_cached = load.dense_cached_share * dense_bytes / drive.cached
    dense_cold = (1 - load.dense_cached_share) * dense_bytes / drive.faults
    dense = dense_cached + dense_cold + dense_bytes * (0.0 if machine.gpu is None else link)
    moved = load.fill_bytes + load.copy_bytes
    up = load.fill_bytes * link
    if load.strategy == "unbuffered" and moved:
        read = load.fill_bytes / drive.direct
        n = max(1, load.fill_batches)
        fill = line_ends(n, [read / n, up / n], [0.0, 0.0], load.depth)[-1] if load.depth > 1 else read + up
        copy = load.copy_bytes * (1 / drive.direct + ram)
        busy, cache, purge, drive_bytes = moved / drive.direct, 0.0, load.purge_s, float(moved)
    else:
        share = load.cached_share
        a_byte = share / drive.cached + (1 - share) / drive.faults
        fill, copy = load.fill_bytes * a_byte + up, load.copy_bytes * (a_byte + ram)
        busy, cache, purge, drive_bytes = moved * (1 - share) / drive.faults, moved * share / drive.cached, 0.0, moved * (1 - share)
    return StartTimes(
        machine.start_s, dense, purge, fill, copy, busy + dense_cold, up, cache + dense_cached,
        drive_bytes + (1 - load.dense_cached_share) * dense_bytes,
    )  # fmt: skip
