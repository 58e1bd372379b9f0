"""How many cores this process may use: its affinity, and the CPU quota of its cgroups."""

from __future__ import annotations

import math
import os
from pathlib import Path

from strata_recipes.errors import DeviceError
from strata_recipes.machine.cgroup import Group, groups, read_text


def usable_cores(root: Path = Path("/")) -> int:
    """At least 1; a quota of 2.5 cores counts as 3, since threads may use all of it."""
    found = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if os.name != "nt":
        for group in groups(root, "cpu"):
            found = min(found, _quota(group))
    return max(1, math.ceil(found))


def _quota(group: Group) -> float:
    """Cores of one group's quota; infinite where it has none."""
    if group.version == 2:
        path = group.folder / "cpu.max"
        text = read_text(path)
        quota, _, period = (text or "max").partition(" ")
        period = period or "100000"
    else:
        path = group.folder / "cpu.cfs_quota_us"
        quota = read_text(path) or "-1"  # no file, no quota
        period = read_text(group.folder / "cpu.cfs_period_us") or "100000"
    if quota in ("max", "-1"):
        return math.inf
    if not (quota.isdigit() and period.isdigit() and int(period)):
        raise DeviceError(f"{path} holds a CPU quota of {quota!r} in {period!r}, wanted are microseconds: state hardware.cpu.cores")
    return int(quota) / int(period)
