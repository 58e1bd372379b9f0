"""Fills the facts of a PC that the config leaves open, by looking at this one; what is found is named. Plans nothing."""

from __future__ import annotations

import copy
import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from strata_recipes.config.choices import Os
from strata_recipes.config.schema import Hardware
from strata_recipes.errors import ConfigError
from strata_recipes.machine import facts
from strata_recipes.machine.cores import usable_cores
from strata_recipes.machine.drive import Rates, existing_folder, probe_drive
from strata_recipes.machine.facts import DEVICE, ESTIMATED
from strata_recipes.machine.gpu import Card, find_card
from strata_recipes.machine.memory import available, total
from strata_recipes.machine.rates_cache import cache_folder, remember, remembered
from strata_recipes.units import MiB

CORE_FLOPS = 20e9  # a core in the 2-bit expert kernel: 60 to 100 GFLOP/s on 2 cores from 8 rows on, 20 for one
CARD_SHARES = (0.35, 0.43)  # of its stated rates, in a prompt and in a reply: what quantized kernels of public engines reach
# On two cores a prompt's compute took 1.9 s whose operations at CORE_FLOPS are 0.55 s (results/prefill); a reply half a copy's rate.
CPU_SHARES = (0.3, 0.5)
START_S = 4.0  # interpreter, torch and compiled kernels of this package on two cores, until the copies begin
STAND_IN = Card("", "stated card", "8.0", 0, 0, 300e9, 10e12, 10e9, ("name", "capability", "bandwidth", "flops", "pcie"))


def resolve_hardware(
    hardware: Hardware,
    folder: Path,
    find: Callable[[], Card | None] = find_card,
    root: Path = Path("/"),
    cached_share: Callable[[], float | None] = lambda: None,
) -> tuple[Hardware, facts.Machine]:
    """All facts as literals, and the machine they make. Stated facts stay; null ones are probed and listed in `probed`.

    `folder`: whose drive is meant. `cached_share` looks what of the pack's experts the page cache holds; None: not told.
    With the result as input nothing is probed, and the same machine comes out.
    """
    found = copy.deepcopy(hardware)
    filler = _Filler(found)
    _fill_memory(found, filler, root)
    _fill_cpu(found, filler, root)
    _fill_gpu(found, filler, find)
    _fill_drive(found, filler, folder)
    _fill_estimates(found, filler)
    if found.drive.cached_share is None:
        share = cached_share()
        filler.fill(found.drive, "drive.", "cached_share", share or 0.0, assumed=share is None)
    found.probed = sorted({*hardware.probed, *filler.probed})
    return found, machine_of(found)


def machine_of(hardware: Hardware) -> facts.Machine:
    """The machine of a config whose facts are all stated; ConfigError names those that are not."""
    gpu, cpu, drive = hardware.gpu, hardware.cpu, hardware.drive
    groups: list[tuple[str, Any, tuple[str, ...]]] = [
        ("", hardware, ("os", "ram", "available")),
        ("cpu.", cpu, ("cores", "bandwidth", "flops")),
        ("drive.", drive, ("direct", "faults", "cached")),
        ("gpu.", gpu, ("name", "capability", "vram", "free", "bandwidth", "flops", "pcie") if gpu.vram != 0 else ()),
    ]
    missing = [f"hardware.{prefix}{name} is not known" for prefix, group, names in groups for name in names if getattr(group, name) is None]
    if missing:
        raise ConfigError(missing)
    card = None
    if gpu.vram:
        card = facts.Gpu(gpu.name, gpu.capability, gpu.vram, gpu.free, gpu.bandwidth, gpu.flops, gpu.pcie)  # type: ignore[arg-type]
    return facts.Machine(
        name=hardware.name,
        os=hardware.os.value,  # type: ignore[union-attr]
        ram_bytes=hardware.ram,  # type: ignore[arg-type]
        ram_available_bytes=hardware.available,  # type: ignore[arg-type]
        cpu=facts.Cpu(cpu.cores, cpu.bandwidth, cpu.flops),  # type: ignore[arg-type]
        gpu=card,
        drive=facts.Drive(drive.direct, drive.faults, drive.cached, drive.cached_share or 0.0),  # type: ignore[arg-type]
        efficiency=_efficiency(hardware),
        start_s=hardware.start_s or 0.0,
        probed=frozenset(hardware.probed) - {DEVICE},
    )


def _efficiency(hardware: Hardware) -> facts.Efficiency:
    stated = {name: share for name, share in vars(hardware.efficiency).items() if share is not None}
    return facts.Efficiency(**stated)


def differences(machine: facts.Machine, find: Callable[[], Card | None] = find_card, root: Path = Path("/")) -> tuple[str, ...]:
    """Keys of the stated facts that are not this PC's own. Rates are another PC's where that PC is: they are not measured for this."""
    card, gpu = find(), machine.gpu
    pairs: dict[str, tuple[Any, Any]] = {
        "os": (machine.os, own_os().value),
        "ram": (machine.ram_bytes, total(root)),
        "cpu.cores": (machine.cpu.cores, usable_cores(root)),
        "gpu.name": (gpu and gpu.name, card and card.name),
        "gpu.capability": (gpu and gpu.capability, card and card.capability),
        "gpu.vram": (gpu and gpu.vram_bytes, card and card.vram_bytes),
    }
    found = [key for key, (stated, own) in pairs.items() if stated != own and not _probed(machine, key)]
    if "gpu.vram" in found or "gpu.name" in found:
        found.append("gpu.free")
    if {"ram", "os", "cpu.cores"} & set(found):
        found += ["available", "cpu.bandwidth", "cpu.flops", "drive.direct", "drive.faults", "drive.cached"]
    if gpu is not None and "gpu.name" in found:
        found += ["gpu.bandwidth", "gpu.flops", "gpu.pcie"]
    return tuple(sorted(key for key in found if not _probed(machine, key)))


def own_os() -> Os:
    return Os.windows if os.name == "nt" else Os.linux


class _Filler:
    """Sets null facts and remembers their names."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self.probed: list[str] = []

    def fill(self, group: Any, prefix: str, name: str, value: Any, assumed: bool = False) -> None:
        if getattr(group, name) is None:
            setattr(group, name, value)
            self.probed.append(f"{prefix}{name}{ESTIMATED if assumed else ''}")


def _probed(machine: facts.Machine, name: str) -> bool:
    return name in machine.probed or name + ESTIMATED in machine.probed


def _null(group: Any, *names: str) -> bool:
    return any(getattr(group, name) is None for name in names)


def _fill_memory(found: Hardware, filler: _Filler, root: Path) -> None:
    filler.fill(found, "", "os", own_os())
    if found.available is None:
        own = available(root).num_bytes
        filler.fill(found, "", "available", own if found.ram is None else min(own, found.ram))
    if found.ram is None:
        filler.fill(found, "", "ram", max(total(root), found.available or 0))


def _fill_cpu(found: Hardware, filler: _Filler, root: Path) -> None:
    if found.cpu.cores is None:
        filler.fill(found.cpu, "cpu.", "cores", usable_cores(root))
    if found.cpu.bandwidth is None:
        filler.fill(found.cpu, "cpu.", "bandwidth", copy_bandwidth())
    filler.fill(found.cpu, "cpu.", "flops", (found.cpu.cores or 1) * CORE_FLOPS, assumed=True)


def _fill_gpu(found: Hardware, filler: _Filler, find: Callable[[], Card | None]) -> None:
    gpu, names = found.gpu, ("name", "capability", "bandwidth", "flops", "pcie")
    if gpu.vram == 0 or not _null(gpu, "vram", "free", *names):
        return
    if gpu.vram is not None and not _null(gpu, *names):  # a whole card is stated: what is free of it is stated too, all of it
        gpu.free = gpu.vram
        return
    card = find()
    if card is None and gpu.vram is None:
        filler.fill(gpu, "gpu.", "vram", 0)
        return
    if card is None:
        card = dataclasses.replace(STAND_IN, vram_bytes=gpu.vram or 0, free_bytes=gpu.vram or 0)
        gpu.free = gpu.vram if gpu.free is None else gpu.free
    if gpu.free is None:
        filler.fill(gpu, "gpu.", "free", card.free_bytes if gpu.vram is None else min(card.free_bytes, gpu.vram))
    filler.fill(gpu, "gpu.", "vram", card.vram_bytes)
    for name in names:
        filler.fill(gpu, "gpu.", name, getattr(card, name), assumed=name in card.assumed)


def _fill_drive(found: Hardware, filler: _Filler, folder: Path) -> None:
    if not _null(found.drive, "direct", "faults", "cached"):
        return
    rates = _drive_rates(folder)
    for name in ("direct", "faults", "cached"):
        filler.fill(found.drive, "drive.", name, getattr(rates, name), assumed=name in rates.assumed)


def _fill_estimates(found: Hardware, filler: _Filler) -> None:
    """What of the stated rates is reached, and how long the process takes to be there: never probed."""
    shares = CPU_SHARES if found.gpu.vram == 0 else CARD_SHARES
    for name, share in zip(("prompt", "decode"), shares, strict=True):
        filler.fill(found.efficiency, "efficiency.", name, share, assumed=True)
    filler.fill(found, "", "start_s", START_S, assumed=True)


def _drive_rates(folder: Path) -> Rates:
    device, cache = existing_folder(folder).stat().st_dev, cache_folder()
    rates = remembered(cache, device)
    if rates is None:
        rates = probe_drive(folder)
        if not rates.assumed:
            remember(cache, device, rates)
    return rates


def copy_bandwidth() -> float:
    """Bytes read and written a second by one thread's copy: a floor of what all cores reach."""
    source, into = np.ones(32 * MiB, np.uint8), np.ones(32 * MiB, np.uint8)
    begin = time.perf_counter()
    np.copyto(into, source)
    return 2 * source.nbytes / (time.perf_counter() - begin)
