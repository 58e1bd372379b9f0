"""A memory-limited control group: really paging a mapped file under it, and refusals on real and made-up systems."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from strata_recipes.errors import DeviceError
from strata_recipes.files.residency import cached_bytes, drop_cached
from strata_recipes.machine.cgroup import groups
from strata_recipes.machine.limited import LimitedGroup, limited
from strata_recipes.units import MiB

if sys.platform == "win32":
    pytest.skip("Linux has control groups", allow_module_level=True)

CAN_LIMIT = os.geteuid() == 0 and any(os.access(group.folder, os.W_OK) for group in groups(Path("/"), "memory"))
needs_cgroup = pytest.mark.skipif(not CAN_LIMIT, reason="needs root and a writable memory control group")

READ_TWICE = """
import mmap, os, sys
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
    sums = [sum(view[at] for at in range(0, len(view), 4096)) for _ in range(2)]
read = next(line.split()[1] for line in open("/proc/self/io") if line.startswith("read_bytes"))
print(*sums, read)
"""


@pytest.fixture(scope="module")
def big_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """600 MiB on a drive, and the sum of every page's first byte."""
    path = tmp_path_factory.mktemp("paged") / "experts.bin"
    kind = subprocess.run(["stat", "-f", "-c", "%T", path.parent], capture_output=True, text=True, check=True).stdout.strip()
    assert kind != "tmpfs", "a file in RAM pages nothing: set TMPDIR to a folder on a drive"
    tile = np.random.default_rng(3).integers(0, 256, 8 * MiB, dtype=np.uint8)
    with open(path, "wb") as file:
        for _ in range(75):
            file.write(tile.data)
    drop_cached(path)
    return path, 75 * int(tile[::4096].sum())


@needs_cgroup
def test_a_mapped_file_bigger_than_the_limit_pages(big_file: tuple[Path, int]) -> None:
    path, expected = big_file
    with limited(256 * MiB) as group:
        assert group.limit_bytes == 256 * MiB
        done = subprocess.run(group.command([sys.executable, "-c", READ_TWICE, str(path)]), capture_output=True, text=True, check=True)
        first, second, read = (int(word) for word in done.stdout.split())
        assert first == second == expected
        assert group.peak_bytes() <= 256 * MiB
        assert 100 * MiB < group.usage_bytes() <= 256 * MiB, "the pages that are left are the group's"
        cached = cached_bytes(path)
        assert cached is not None and cached <= 256 * MiB
        assert read > 900 * MiB, "a PC with 256 MiB must read most of the file again in the second pass"


@needs_cgroup
def test_without_a_limit_the_second_pass_reads_nothing(big_file: tuple[Path, int]) -> None:
    path, expected = big_file
    drop_cached(path)
    done = subprocess.run([sys.executable, "-c", READ_TWICE, str(path)], capture_output=True, text=True, check=True)
    first, second, read = (int(word) for word in done.stdout.split())
    assert first == second == expected
    assert read < 700 * MiB


@needs_cgroup
def test_the_group_is_removed_and_those_inside_are_sent_back() -> None:
    mine = Path("/proc/self/cgroup").read_text()
    with limited(64 * MiB) as group:
        sleeper = subprocess.Popen(group.command(["sleep", "1000"]))
        group.adopt(os.getpid())
        assert Path("/proc/self/cgroup").read_text() != mine
        children = subprocess.Popen(["sleep", "1000"])
        assert {os.getpid(), children.pid} <= set(group.processes())
    assert Path("/proc/self/cgroup").read_text() == mine
    assert not group.folder.exists()
    for process in (sleeper, children):
        assert process.poll() is None
        process.kill()
        process.wait()


@needs_cgroup
def test_the_group_is_removed_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), limited(64 * MiB) as group:
        1 / 0  # noqa: B018
    assert not group.folder.exists()


@needs_cgroup
def test_what_is_available_inside_counts_the_page_cache_as_free(big_file: tuple[Path, int]) -> None:
    path, _ = big_file
    drop_cached(path)
    with limited(256 * MiB) as group:
        before = group.available_bytes()
        subprocess.run(group.command([sys.executable, "-c", READ_TWICE, str(path)]), capture_output=True, check=True)
        assert group.usage_bytes() > 100 * MiB
        assert before - group.available_bytes() < 32 * MiB


def test_more_than_is_available_is_refused_with_both_numbers() -> None:
    with (
        pytest.raises(DeviceError, match=r"a PC with 1,048,576\.00 GiB of RAM cannot be stood in for: .* GiB is available here"),
        limited(1 << 50),
    ):
        pass


@needs_cgroup
def test_without_permission_the_refusal_says_what_to_do() -> None:
    os.seteuid(65534)
    try:
        with (
            pytest.raises(DeviceError, match=r"no control group can be made \(Permission denied, errno 13\): start as root"),
            limited(64 * MiB),
        ):
            pass
    finally:
        os.seteuid(0)


def system(root: Path, own: str, files: dict[str, str]) -> Path:
    """A made-up /proc and /sys with the unified hierarchy at its usual place."""
    files = {
        "proc/self/cgroup": f"0::{own}\n",
        "proc/self/mountinfo": "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "proc/meminfo": "MemTotal: 33554432 kB\nMemAvailable: 25165824 kB\n",
        **files,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture()
def plain_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a made-up hierarchy a group's control files are files, which only the kernel's rmdir takes along."""
    monkeypatch.setattr(Path, "rmdir", lambda self: shutil.rmtree(self))


@pytest.mark.usefixtures("plain_folders")
@pytest.mark.parametrize(
    ("handing_down", "parent"),
    [("user.slice/work.scope", "user.slice/work.scope"), ("user.slice", "user.slice")],
    ids=["own group", "one above"],
)
def test_the_unified_hierarchy_is_entered_where_it_hands_memory_down(tmp_path: Path, handing_down: str, parent: str) -> None:
    base = "sys/fs/cgroup"
    root = system(tmp_path, "/user.slice/work.scope", {
        f"{base}/user.slice/cgroup.controllers": "cpu memory",
        f"{base}/user.slice/work.scope/cgroup.controllers": "memory",
        f"{base}/{handing_down}/cgroup.subtree_control": "memory pids",
    })  # fmt: skip
    if handing_down != "user.slice/work.scope":  # a group with processes: the kernel refuses to let it hand down
        (root / base / "user.slice/work.scope/cgroup.subtree_control").symlink_to("/proc/self/nothing/here")
    with limited(512 * MiB, root) as group:
        assert (group.version, group.folder.parent) == (2, root / base / parent)
        assert (group.folder / "memory.max").read_text() == str(512 * MiB)
        assert group.command(["a", "b c"])[-3:] == [str(group.folder / "cgroup.procs"), "a", "b c"]
        (group.folder / "memory.current").write_text("300000000")
        (group.folder / "memory.stat").write_text("anon 100000000\nactive_file 150000000\ninactive_file 50000000\n")
        assert group.available_bytes() == 512 * MiB - 100_000_000
        (group.folder / "cgroup.procs").write_text("")
    assert not group.folder.exists()


def test_without_a_controller_the_refusal_says_so(tmp_path: Path) -> None:
    root = system(tmp_path, "/", {"sys/fs/cgroup/cgroup.controllers": "cpu pids"})
    with pytest.raises(DeviceError, match=r"no memory controller of control groups is at hand .* emulate\.ram=ledger"), limited(MiB, root):
        pass


def test_a_group_that_cannot_hand_down_is_refused_with_the_way_out(tmp_path: Path) -> None:
    root = system(tmp_path, "/", {"sys/fs/cgroup/cgroup.controllers": "memory"})
    (root / "sys/fs/cgroup/cgroup.subtree_control").symlink_to("/proc/self/nothing/here")
    with pytest.raises(DeviceError, match=r"hands its memory controller down.*systemd-run --scope"), limited(MiB, root):
        pass


def test_usage_of_a_group_that_is_gone_is_an_error_not_zero(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"memory\.current is missing"):
        LimitedGroup(2, tmp_path, MiB).usage_bytes()
