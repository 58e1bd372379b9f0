"""Where a process stands among control groups, v1 and v2, as folders from its own up to the mount. Knows no limit's meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from strata_recipes.errors import DeviceError

_DEFAULT_MOUNT = "/sys/fs/cgroup"


@dataclass(frozen=True)
class Group:
    """One group on the way up: its version, and its folder (under the given root)."""

    version: int
    folder: Path


def groups(root: Path, controller: str) -> Iterator[Group]:
    """Every group that holds this process, the innermost first, for a controller such as `memory`; none outside cgroups."""
    text = read_text(root / "proc/self/cgroup")
    for line in (text or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            raise DeviceError(f"{root / 'proc/self/cgroup'} holds {line!r}, wanted is number:controllers:path")
        number, controllers, path = parts
        version = 2 if number == "0" and not controllers else 1
        if version == 2 or controller in controllers.split(","):
            yield from _upwards(root, version, controller, path)


def read_text(path: Path) -> str | None:
    """A small control file; None where it is not there. One that cannot be read is an error: unknown is not unlimited."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DeviceError(f"{path} cannot be read ({error.strerror}, errno {error.errno}), so a limit may be missed") from error


def read_count(path: Path) -> int | None:
    """A whole number out of a control file; `max` stands for None; None where the file is not there."""
    text = read_text(path)
    if text is None or text == "max":
        return None
    if not text.isdigit():
        raise DeviceError(f"{path} holds {text[:80]!r}, wanted is a number of bytes or 'max'")
    return int(text)


def _upwards(root: Path, version: int, controller: str, path: str) -> Iterator[Group]:
    for mounted, point in _mounts(root, version, controller):
        inside = PurePosixPath(path)
        # a container sees its own group as the mount's root; a path outside of it (cgroup namespaces) stands for the mount itself
        below = inside.relative_to(mounted) if inside.is_relative_to(mounted) and ".." not in inside.parts else PurePosixPath()
        for folder in (below, *below.parents) if below.parts else (below,):
            yield Group(version, root / point.lstrip("/") / folder)


def _mounts(root: Path, version: int, controller: str) -> list[tuple[str, str]]:
    """(root inside the hierarchy, mount point) of each mount of that version."""
    text = read_text(root / "proc/self/mountinfo")
    if text is None:
        return [("/", _DEFAULT_MOUNT if version == 2 else f"{_DEFAULT_MOUNT}/{controller}")]
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        kind, fields = right.split(" "), left.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        if (version == 2 and kind[0] == "cgroup2") or (version == 1 and kind[0] == "cgroup" and controller in kind[2].split(",")):
            found.append((_unescaped(fields[3]), _unescaped(fields[4])))
    return found


def _unescaped(text: str) -> str:
    """mountinfo writes a space as `\\040`."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
