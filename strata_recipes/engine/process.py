"""What this process and its system have used so far, as plain counts. Does not know what the run does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

VMSTAT = Path("/proc/vmstat")


@dataclass(frozen=True)
class ProcessUse:
    """Counts since the process began; None where the system does not tell. Pages swapped are the whole system's."""

    rss_bytes: int
    drive_bytes: int | None  # read from storage by this process, mapped reads included
    major_faults: int | None
    pages_in: int | None
    pages_out: int | None


def process_use() -> ProcessUse:
    """The counts now."""
    process, swapped = psutil.Process(), _swapped()
    return ProcessUse(process.memory_info().rss, _drive_bytes(process), _major_faults(), swapped.get("pswpin"), swapped.get("pswpout"))


def since(later: int | None, earlier: int | None) -> int | None:
    """The growth of a count; None where it is not told."""
    return None if later is None or earlier is None else later - earlier


def _drive_bytes(process: psutil.Process) -> int | None:
    if psutil.WINDOWS:  # its counter holds reads from the file cache too
        return None
    try:
        return int(process.io_counters().read_bytes)
    except (AttributeError, psutil.AccessDenied):
        return None


def _major_faults() -> int | None:
    try:
        import resource
    except ImportError:  # Windows has none
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def _swapped() -> dict[str, int]:
    try:
        text = VMSTAT.read_text()
    except OSError:
        return {}
    rows = (line.split() for line in text.splitlines())
    return {name: int(count) for name, count in rows if name in ("pswpin", "pswpout")}
