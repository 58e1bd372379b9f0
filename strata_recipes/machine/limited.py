"""A control group with a memory limit, in which a process lives as on a PC with less RAM. Linux. Knows no plan.

What counts: the processes' own memory, and every page of the page cache that they read first. So a mapped file bigger
than what is left really pages: over the limit the group's cached pages are dropped and read again. Pages that lie in
the cache already are charged to whoever read them, so the caller drops the file first. Swap is not limited.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from strata_recipes.errors import DeviceError
from strata_recipes.machine.cgroup import Group, groups, read_count, read_text
from strata_recipes.machine.memory import available
from strata_recipes.units import gib

_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
_USAGE = {1: "memory.usage_in_bytes", 2: "memory.current"}
_PEAK = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}
_ENTER = 'echo $$ > "$1" && shift && exec "$@"'  # in the group from its first instruction on, no fork of ours in between
_PATIENCE_S = 5.0
_ELSE = "or take emulate.ram=ledger"


@dataclass(frozen=True)
class LimitedGroup:
    """A group while it exists. `limit_bytes` is what the kernel keeps: whole pages."""

    version: int
    folder: Path
    limit_bytes: int

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The command that runs `arguments` inside the group, children included."""
        return ["/bin/sh", "-c", _ENTER, "sh", str(self.folder / "cgroup.procs"), *arguments]

    def adopt(self, pid: int) -> None:
        """Moves a running process in. What it has used so far stays charged to the group it comes from."""
        _write(self.folder / "cgroup.procs", pid)

    def processes(self) -> list[int]:
        return [int(pid) for pid in (read_text(self.folder / "cgroup.procs") or "").split()]

    def usage_bytes(self) -> int:
        """What is charged now, page cache included."""
        return _known(self.folder / _USAGE[self.version])

    def peak_bytes(self) -> int:
        """The most that was ever charged."""
        return _known(self.folder / _PEAK[self.version])

    def available_bytes(self) -> int:
        """What a process inside can still take: the page cache counts as free."""
        total = "total_" if self.version == 1 else ""  # v1 counts the groups below only so
        stat = dict(line.split() for line in (read_text(self.folder / "memory.stat") or "").splitlines())
        cached = sum(int(stat[f"{total}{key}"]) for key in ("active_file", "inactive_file"))
        return max(0, self.limit_bytes - max(0, self.usage_bytes() - cached))


@contextmanager
def limited(num_bytes: int, root: Path = Path("/")) -> Iterator[LimitedGroup]:
    """A group of this many bytes under the one that this process is in; removed at the end, with those still inside moved back.

    DeviceError where there is no memory controller, no permission, or less RAM than the group is to have.
    """
    if not sys.platform.startswith("linux"):
        raise DeviceError(f"control groups are Linux's, this is {sys.platform}: take emulate.ram=ballast or ledger")
    free = available(root)
    if num_bytes > free.num_bytes:
        raise DeviceError(
            f"a PC with {gib(num_bytes)} of RAM cannot be stood in for: {gib(free.num_bytes)} is available here ({free.limited_by}); "
            f"free memory, state less, {_ELSE}"
        )
    parent = _parent(root)
    folder = _made(parent)
    try:
        _write(folder / _LIMIT[parent.version], num_bytes)
        yield LimitedGroup(parent.version, folder, _known(folder / _LIMIT[parent.version]))
    finally:
        _remove(folder, parent.folder)


def _parent(root: Path) -> Group:
    """The group to make ours in: this process's own, or with v2 the nearest one above that hands the controller down."""
    found = list(groups(root, "memory"))
    for group in found:
        if group.version == 1 and (group.folder / _LIMIT[1]).exists():
            return group
    unified = [group for group in found if group.version == 2]
    if not any("memory" in (read_text(group.folder / "cgroup.controllers") or "").split() for group in unified):
        raise DeviceError(f"no memory controller of control groups is at hand (neither v1 nor v2): mount one, {_ELSE}")
    for group in unified:
        if "memory" in (read_text(group.folder / "cgroup.subtree_control") or "").split() or _handed_down(group):
            return group
    raise DeviceError(
        f"no control group from {unified[0].folder} upwards hands its memory controller down, which one that holds processes cannot: "
        f"start under `systemd-run --scope -p Delegate=yes`, {_ELSE}"
    )


def _handed_down(group: Group) -> bool:
    """Asks a v2 group to hand the memory controller to its children; a group with processes of its own refuses (EBUSY)."""
    try:
        (group.folder / "cgroup.subtree_control").write_text("+memory")
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EOPNOTSUPP):
            return False
        raise
    return True


def _made(parent: Group) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=f"strata-{os.getpid()}-", dir=parent.folder))
    except OSError as error:
        raise DeviceError(
            f"{parent.folder}: no control group can be made ({error.strerror}, errno {error.errno}): start as root, "
            f"or under `systemd-run --user --scope -p Delegate=yes`, {_ELSE}"
        ) from error


def _write(path: Path, number: int) -> None:
    try:
        path.write_text(str(number))
    except OSError as error:
        raise DeviceError(f"{path} does not take {number} ({error.strerror}, errno {error.errno}): start as root, {_ELSE}") from error


def _known(path: Path) -> int:
    number = read_count(path)
    if number is None:
        raise DeviceError(f"{path} is missing or without a number: the control group was removed or changed from outside")
    return number


def _remove(folder: Path, parent: Path) -> None:
    """Sends those still inside back, then removes the group; the kernel may hold on to one whose processes are just ending."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        for pid in (read_text(folder / "cgroup.procs") or "").split():
            _send_back(pid, parent)
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise DeviceError(f"{folder} cannot be removed ({error.strerror}, errno {error.errno}): remove it by hand") from error
            time.sleep(0.01)


def _send_back(pid: str, parent: Path) -> None:
    try:
        (parent / "cgroup.procs").write_text(pid)
    except OSError as error:
        if error.errno != errno.ESRCH:  # it ended meanwhile
            raise DeviceError(f"{parent / 'cgroup.procs'} does not take process {pid} back ({error.strerror}): end that process") from error
