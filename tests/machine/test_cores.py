"""Usable cores: affinity and CPU quotas of both cgroup versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from strata_recipes.errors import DeviceError
from strata_recipes.machine.cores import usable_cores
from tests.machine.fake_root import FakeRoot


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRoot:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    return FakeRoot(tmp_path)


def test_affinity_counts_without_a_quota(root: FakeRoot) -> None:
    assert usable_cores(root.path) == 8


@pytest.mark.parametrize(("text", "cores"), [("200000 100000", 2), ("250000 100000", 3), ("9 100000", 1), ("max 100000", 8), ("max", 8)])
def test_a_v2_quota(root: FakeRoot, text: str, cores: int) -> None:
    root.put("proc/self/cgroup", "0::/job")
    root.put("sys/fs/cgroup/job/cpu.max", text)
    assert usable_cores(root.path) == cores


@pytest.mark.parametrize(("quota", "cores"), [(-1, 8), (400000, 4)])
def test_a_v1_quota_of_a_parent(root: FakeRoot, quota: int, cores: int) -> None:
    root.put("proc/self/cgroup", "2:cpu,cpuacct:/a/b")
    root.put("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", quota)
    root.put("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", 100000)
    assert usable_cores(root.path) == cores


def test_a_malformed_quota_is_told(root: FakeRoot) -> None:
    root.put("proc/self/cgroup", "0::/job")
    root.put("sys/fs/cgroup/job/cpu.max", "lots 100000")
    with pytest.raises(DeviceError, match="'lots'"):
        usable_cores(root.path)
