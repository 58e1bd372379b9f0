"""Seconds of the start-up copies by either strategy: bytes over rates, without overlap. Reads no clock."""

from __future__ import annotations

from dataclasses import dataclass

from strata_recipes.machine.facts import Machine


@dataclass(frozen=True)
class StartLoad:
    """What a start copies, and how much of the file the page cache holds for it."""

    strategy: str
    fill_bytes: int
    copy_bytes: int
    cached_share: float  # that stays cached beside the RAM copy
    purge_s: float  # of the cached pages, before the first unbuffered read


def startup_s(machine: Machine, load: StartLoad) -> float:
    """Mapped: cached pages by a copy, the rest by page faults. Unbuffered: every byte by direct reads, cached or not."""
    drive, into_ram = machine.drive, 1 / machine.cpu.bandwidth
    into_slot = into_ram if machine.gpu is None else 1 / machine.gpu.pcie
    if load.strategy == "unbuffered":
        read, first = 1 / drive.direct, load.purge_s
    else:
        read, first = load.cached_share / drive.cached + (1 - load.cached_share) / drive.faults, 0.0
    if not load.fill_bytes + load.copy_bytes:
        return 0.0
    return first + load.fill_bytes * (read + into_slot) + load.copy_bytes * (read + into_ram)
