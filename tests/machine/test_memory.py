"""Available RAM: the least of MemAvailable and every cgroup limit on the way up, with kernels faked file by file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from strata_recipes.errors import DeviceError
from strata_recipes.machine.memory import MemoryStatus, available, total, windows_available
from strata_recipes.units import GiB, MiB
from tests.machine.fake_root import FakeRoot

SENTINEL = 9223372036854771712


@pytest.fixture
def root(tmp_path: Path) -> FakeRoot:
    return FakeRoot(tmp_path)


def test_without_cgroups_the_kernel_says(root: FakeRoot) -> None:
    found = available(root.path)
    assert (found.num_bytes, found.limited_by) == (34 * GiB, "MemAvailable")
    assert total(root.path) == 64 * GiB


def test_a_v2_limit_wins_over_a_big_host(root: FakeRoot) -> None:
    root.put("proc/self/cgroup", "0::/job")
    root.group_v2("job", 2 * GiB)
    found = available(root.path)
    assert found.num_bytes == 2 * GiB
    assert found.limited_by == "cgroup v2 memory.max of /sys/fs/cgroup/job"


def test_what_cannot_be_reclaimed_is_taken_off(root: FakeRoot) -> None:
    root.put("proc/self/cgroup", "0::/job")
    root.group_v2("job", 8 * GiB, 5 * GiB, f"anon 1\ninactive_file {2 * GiB}\nactive_file {1 * GiB}\nslab_reclaimable {512 * MiB}")
    assert available(root.path).num_bytes == 8 * GiB - (5 * GiB - 3 * GiB - 512 * MiB)


def test_a_limit_only_on_a_parent_counts(root: FakeRoot) -> None:
    root.put("proc/self/cgroup", "0::/slice/unit/job")
    root.group_v2("slice/unit/job", "max")
    root.group_v2("slice/unit", "max")
    root.group_v2("slice", 3 * GiB, 1 * GiB)
    found = available(root.path)
    assert (found.num_bytes, found.limited_by) == (2 * GiB, "cgroup v2 memory.max of /sys/fs/cgroup/slice")


def test_memory_high_counts_too(root: FakeRoot) -> None:
    root.put("proc/self/cgroup", "0::/job")
    root.group_v2("job", 8 * GiB)
    root.put("sys/fs/cgroup/job/memory.high", 5 * GiB)
    assert available(root.path).num_bytes == 5 * GiB


def test_the_v1_sentinel_is_no_limit(root: FakeRoot) -> None:
    root.put("proc/self/cgroup", "4:memory:/job\n0::/")
    root.group_v1("job", SENTINEL, 5 * GiB)
    assert available(root.path).limited_by == "MemAvailable"


def test_v1_and_v2_side_by_side(root: FakeRoot) -> None:
    root.put("proc/self/cgroup", "4:memory:/a/b\n3:cpu,cpuacct:/x\n0::/job")
    root.group_v2("job", 9 * GiB)
    root.group_v1("a/b", SENTINEL)
    root.group_v1("a", 4 * GiB, 3 * GiB, f"cache 5\ntotal_inactive_file {GiB}\ntotal_active_file {GiB}\ninactive_file 0")
    found = available(root.path)
    assert found.num_bytes == 4 * GiB - 1 * GiB
    assert found.limited_by == "cgroup v1 memory.limit_in_bytes of /sys/fs/cgroup/memory/a"


def test_a_group_over_its_limit_leaves_nothing(root: FakeRoot) -> None:
    root.put("proc/self/cgroup", "0::/job")
    root.group_v2("job", 1 * GiB, 3 * GiB)
    assert available(root.path).num_bytes == 0


def test_mounts_are_read_where_the_kernel_says(root: FakeRoot) -> None:
    root.put("proc/self/cgroup", "0::/docker/abc")
    root.put("proc/self/mountinfo", r"30 24 0:26 /docker/abc /odd\040place rw,nosuid - cgroup2 cgroup rw")
    root.put("odd place/memory.max", 6 * GiB)
    root.put("odd place/memory.current", GiB)
    root.put("odd place/memory.stat", "anon 1")
    assert available(root.path).num_bytes == 5 * GiB


def test_a_path_outside_the_mount_stands_for_the_mount(root: FakeRoot) -> None:
    root.put("proc/self/cgroup", "0::/../other")
    root.group_v2("", 6 * GiB)
    assert available(root.path).num_bytes == 6 * GiB


@pytest.mark.parametrize("content", ["abc", "", "-5", "12.5"])
def test_a_malformed_limit_is_told_and_not_read_as_none(root: FakeRoot, content: str) -> None:
    root.put("proc/self/cgroup", "0::/job")
    root.group_v2("job", content)
    with pytest.raises(DeviceError, match=r"job/memory\.max holds"):
        available(root.path)


def test_a_malformed_statistic_is_told(root: FakeRoot) -> None:
    root.put("proc/self/cgroup", "0::/job")
    root.group_v2("job", GiB, 0, "inactive_file many")
    with pytest.raises(DeviceError, match="inactive_file 'many'"):
        available(root.path)


@pytest.mark.parametrize("missing", ["memory.current", "memory.stat"])
def test_unknown_is_not_nothing(root: FakeRoot, missing: str) -> None:
    root.put("proc/self/cgroup", "0::/job")
    root.group_v2("job", GiB)
    (root.path / "sys/fs/cgroup/job" / missing).unlink()
    with pytest.raises(DeviceError, match=f"no {missing}"):
        available(root.path)


def test_a_malformed_group_list_is_told(root: FakeRoot) -> None:
    root.put("proc/self/cgroup", "nonsense")
    with pytest.raises(DeviceError, match="'nonsense'"):
        available(root.path)


@pytest.mark.parametrize("text", ["MemTotal: 5 kB", "MemAvailable: lots kB", "MemAvailable:"])
def test_meminfo_without_a_number_is_told(root: FakeRoot, text: str) -> None:
    root.put("proc/meminfo", text)
    with pytest.raises(DeviceError, match="MemAvailable"):
        available(root.path)


@pytest.mark.parametrize(("free", "commit", "wins"), [(8, 30, "free RAM"), (8, 2, "commit limit")])
def test_windows_takes_the_commit_limit_in(free: int, commit: int, wins: str) -> None:
    found = windows_available(MemoryStatus(ullAvailPhys=free * GiB, ullAvailPageFile=commit * GiB))
    assert (found.num_bytes, found.limited_by) == (min(free, commit) * GiB, wins)


PROGRAM = "from strata_recipes.machine.memory import available as a; x = a(); print(x.num_bytes, x.limited_by)"


@pytest.mark.skipif(sys.platform != "linux", reason="cgroups are Linux's")
def test_a_real_limit_is_seen_by_a_process_inside() -> None:
    """A new group of this machine's own kernel, v2 or v1, with a limit of 700 MiB."""
    made = _real_group()
    if made is None:
        pytest.skip("no permission to make a cgroup with a memory limit here")
    folder, limit_file = made
    try:
        (folder / limit_file).write_text(str(700 * MiB))
        join = f"import os; open({str(folder / 'cgroup.procs')!r}, 'w').write(str(os.getpid())); {PROGRAM}"
        root = Path(__file__).parents[2]
        result = subprocess.run([sys.executable, "-c", join], capture_output=True, text=True, cwd=root, check=True)
    finally:
        folder.rmdir()
    number, _, limited_by = result.stdout.strip().partition(" ")
    assert 600 * MiB < int(number) <= 700 * MiB
    assert limit_file in limited_by and folder.name in limited_by


def _real_group() -> tuple[Path, str] | None:
    for base, name in ((Path("/sys/fs/cgroup"), "memory.max"), (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes")):
        folder = base / f"strata-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if os.access(folder / name, os.W_OK):
            return folder, name
        folder.rmdir()
    return None
