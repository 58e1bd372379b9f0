"""machine.json: every fact a run used and how it is known, and the versions of what it ran on. No host or user name."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Collection
from importlib import metadata
from pathlib import Path
from typing import Any

from strata_recipes.machine.facts import ESTIMATED, Machine

PACKAGES = (
    "strata-recipes", "hydra-core", "omegaconf", "numpy", "numba", "numba-cuda", "torch", "safetensors", "tokenizers", "psutil", "xxhash",
)  # fmt: skip
_GIT_SECONDS = 10


def machine_json(machine: Machine, differing: Collection[str], driver: str | None = None, checkout: Path | None = None) -> str:
    """`differing`: facts not this machine's own, each a line that begins with its key (`ram: 64 GiB, here 8 GiB`).

    `driver` and `checkout` (the folder git is asked about): found when not stated.
    """
    elsewhere = {line.partition(":")[0] for line in differing}
    found = {
        "name": machine.name,
        "facts": {key: {"value": value, "how": _how(key, machine, elsewhere)} for key, value in facts(machine).items()},
        "software": {
            "os": {"system": platform.system(), "release": platform.release(), "architecture": platform.machine()},
            "python": platform.python_version(),
            "packages": {name: _version(name) for name in PACKAGES},
            "driver": driver_version() if driver is None else driver,
        },
        "source": git_state(Path(__file__).parents[2] if checkout is None else checkout),
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def facts(machine: Machine) -> dict[str, str | int | float | None]:
    """The facts by their key in the config's hardware group; a PC without a card has vram 0 and nothing more of it."""
    gpu = machine.gpu
    of_gpu: dict[str, str | int | float | None] = {"gpu.vram": 0} if gpu is None else {
        "gpu.name": gpu.name, "gpu.capability": gpu.capability, "gpu.vram": gpu.vram_bytes, "gpu.free": gpu.free_bytes,
        "gpu.bandwidth": gpu.bandwidth, "gpu.flops": gpu.flops, "gpu.pcie": gpu.pcie,
    }  # fmt: skip
    cpu, drive = machine.cpu, machine.drive
    return {
        "os": machine.os, "ram": machine.ram_bytes, "available": machine.ram_available_bytes,
        "cpu.cores": cpu.cores, "cpu.bandwidth": cpu.bandwidth, "cpu.flops": cpu.flops,
        **of_gpu,
        "drive.direct": drive.direct, "drive.faults": drive.faults, "drive.cached": drive.cached,
        "drive.cached_share": drive.cached_share,
    }  # fmt: skip


def driver_version() -> str | None:
    """The NVIDIA driver, where there is one that answers."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None


def git_state(folder: Path) -> dict[str, Any]:
    """Commit and dirty flag where `folder` is the top of a git checkout; both null elsewhere (an installed package)."""
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != folder.resolve():
        return {"commit": None, "dirty": None}
    changes = _git(folder, "status", "--porcelain")
    return {"commit": _git(folder, "rev-parse", "--verify", "HEAD"), "dirty": None if changes is None else bool(changes)}


def _how(key: str, machine: Machine, elsewhere: Collection[str]) -> str:
    if key in machine.probed:
        return "probed"
    if key + ESTIMATED in machine.probed:
        return "estimated"
    return "emulated" if key in elsewhere else "declared"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, encoding="utf-8", errors="replace", timeout=_GIT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
