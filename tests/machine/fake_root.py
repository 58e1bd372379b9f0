"""A fake /proc and /sys, written file by file."""

from __future__ import annotations

from pathlib import Path

from strata_recipes.units import GiB, KiB


class FakeRoot:
    """A folder with the files of a kernel; `put` writes one of them."""

    def __init__(self, folder: Path, available: int = 34 * GiB, total: int = 64 * GiB) -> None:
        self.path = folder
        self.put("proc/meminfo", f"MemTotal: {total // KiB} kB\nMemFree: 12 kB\nMemAvailable: {available // KiB} kB\n")

    def put(self, name: str, text: object) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def group_v2(self, folder: str, limit: object, current: int = 0, stat: str = "") -> None:
        base = f"sys/fs/cgroup/{folder}".rstrip("/")
        self.put(f"{base}/memory.max", limit)
        self.put(f"{base}/memory.current", current)
        self.put(f"{base}/memory.stat", stat or "anon 0")

    def group_v1(self, folder: str, limit: object, usage: int = 0, stat: str = "") -> None:
        base = f"sys/fs/cgroup/memory/{folder}".rstrip("/")
        self.put(f"{base}/memory.limit_in_bytes", limit)
        self.put(f"{base}/memory.usage_in_bytes", usage)
        self.put(f"{base}/memory.stat", stat or "cache 0")
