"""The least RAM that a run leaves available, and the most that it holds itself. Knows no times."""

from __future__ import annotations

from dataclasses import dataclass

from strata_recipes.simulate.load import Load


@dataclass(frozen=True)
class LeastRam:
    lowest_available_bytes: int
    peak_rss_bytes: int


def least_ram(load: Load, os: str) -> LeastRam:
    """Linux: pages of a mapping can be taken back, so they count as available. Windows: those that were touched are the process's.

    There the fill's pages are let go after the fill; the copy's stay beside the copy until it is done.
    """
    start, memory = load.start, load.memory
    if start.strategy == "unbuffered":
        held = max(memory.start_bytes, start.copy_bytes)  # the fill's buffers are given back before the copy is whole
    elif os == "windows":
        held = max(start.fill_bytes, 2 * start.copy_bytes)
    else:
        held = start.copy_bytes
    held += memory.parts_bytes
    return LeastRam(max(0, memory.available_bytes - held), held)
