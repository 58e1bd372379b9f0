"""How much RAM a new process can take: the least of what the kernel says, cgroup limits and the commit limit. Knows no plan."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from strata_recipes.errors import DeviceError
from strata_recipes.machine.cgroup import Group, groups, read_count, read_text
from strata_recipes.units import KiB

NO_LIMIT = 1 << 60  # cgroup v1 writes "none" as the largest page-aligned number, 2**63 - 4096
_RECLAIMABLE = {1: ("total_inactive_file", "total_active_file"), 2: ("inactive_file", "active_file", "slab_reclaimable")}
_LIMITS = {1: ("memory.limit_in_bytes",), 2: ("memory.max", "memory.high")}
_USAGE = {1: "memory.usage_in_bytes", 2: "memory.current"}


@dataclass(frozen=True)
class Available:
    """Bytes, and which of the limits they come from."""

    num_bytes: int
    limited_by: str


class MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of the Windows API; `ullAvailPageFile` is what of the commit limit is left."""

    _fields_ = [
        ("dwLength", ctypes.c_uint32),
        ("dwMemoryLoad", ctypes.c_uint32),
        ("ullTotalPhys", ctypes.c_uint64),
        ("ullAvailPhys", ctypes.c_uint64),
        ("ullTotalPageFile", ctypes.c_uint64),
        ("ullAvailPageFile", ctypes.c_uint64),
        ("ullTotalVirtual", ctypes.c_uint64),
        ("ullAvailVirtual", ctypes.c_uint64),
        ("ullAvailExtendedVirtual", ctypes.c_uint64),
    ]


def available(root: Path = Path("/")) -> Available:
    """The least of all limits; DeviceError where a control file cannot be understood. `root` holds proc and sys."""
    if os.name == "nt":
        return windows_available(windows_status())
    found = [Available(_meminfo(root, "MemAvailable"), "MemAvailable"), *_cgroup_limits(root)]
    return min(found, key=lambda limit: limit.num_bytes)


def total(root: Path = Path("/")) -> int:
    """RAM of the PC."""
    return int(windows_status().ullTotalPhys) if os.name == "nt" else _meminfo(root, "MemTotal")


def windows_available(status: MemoryStatus) -> Available:
    """Free RAM, or what of the commit limit is left where that is less: an allocation needs both."""
    found = (Available(int(status.ullAvailPhys), "free RAM"), Available(int(status.ullAvailPageFile), "commit limit"))
    return min(found, key=lambda limit: limit.num_bytes)


def windows_status() -> MemoryStatus:
    """GlobalMemoryStatusEx."""
    status = MemoryStatus(dwLength=ctypes.sizeof(MemoryStatus))
    kernel32 = getattr(ctypes, "windll").kernel32  # noqa: B009 - not there for a type checker on another OS
    if not kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        raise DeviceError("GlobalMemoryStatusEx failed: Windows does not say how much RAM is free")
    return status


def _meminfo(root: Path, key: str) -> int:
    path = root / "proc/meminfo"
    for line in (read_text(path) or "").splitlines():
        name, _, value = line.partition(":")
        if name == key:
            number = value.split()[0] if value.split() else ""
            if not number.isdigit():
                raise DeviceError(f"{path} holds {line!r}, wanted is {key} in kB")
            return int(number) * KiB
    raise DeviceError(f"{path} does not state {key}: free RAM is not known, state hardware.available")


def _cgroup_limits(root: Path) -> Iterator[Available]:
    for group in groups(root, "memory"):
        for name in _LIMITS[group.version]:
            limit = read_count(group.folder / name)
            if limit is not None and limit < NO_LIMIT:
                left = limit - _unreclaimable(group)
                yield Available(max(0, left), f"cgroup v{group.version} {name} of /{group.folder.relative_to(root).as_posix()}")


def _unreclaimable(group: Group) -> int:
    """What the group uses without page cache that it could drop; unknown is an error, not 0."""
    usage, stat = read_count(group.folder / _USAGE[group.version]), read_text(group.folder / "memory.stat")
    if usage is None or stat is None:
        missing = _USAGE[group.version] if usage is None else "memory.stat"
        raise DeviceError(f"{group.folder} has a memory limit but no {missing}: what is left of it is not known, state hardware.available")
    values = dict(line.split(" ", 1) for line in stat.splitlines() if " " in line)
    reclaimable = 0
    for key in _RECLAIMABLE[group.version]:
        text = values.get(key, "0").strip()
        if not text.isdigit():
            raise DeviceError(f"{group.folder / 'memory.stat'} holds {key} {text[:80]!r}, wanted is a number of bytes")
        reclaimable += int(text)
    return max(0, usage - reclaimable)
