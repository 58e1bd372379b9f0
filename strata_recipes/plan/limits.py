"""What of a PC's VRAM and RAM a run may use, and how both shrink for a scale model. Knows no experts' places."""

from __future__ import annotations

from dataclasses import dataclass

from strata_recipes.config.schema import Hardware
from strata_recipes.machine.facts import ESTIMATED, Machine
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.budget import Demand, fixed_parts, total
from strata_recipes.plan.plan import Share
from strata_recipes.units import GiB, MiB, gib

RESERVE = {"linux": 700 * MiB, "windows": 1500 * MiB}  # what the public engine leaves; on Windows its setup adds the display
HEADROOM = 4 * GiB  # the public engine's for a RAM copy
FILE_CACHE_ROOM = 4 * GiB  # of page cache that other programs keep, when asking whether files stay cached
BUDGET_FACTS = ("ram", "available", "gpu.vram", "gpu.free")


@dataclass(frozen=True)
class Memory:
    """One budget before experts: its limit, and the parts that are there anyway."""

    name: str
    limit_bytes: int
    because: str
    fixed: tuple[Share, ...]

    @property
    def free_bytes(self) -> int:
        """What is left for experts; negative where the fixed parts alone do not fit."""
        return self.limit_bytes - total(self.fixed)


@dataclass(frozen=True)
class Memories:
    """Both budgets, and what the page cache may hold on top (before the RAM budget's own use)."""

    vram: Memory
    ram: Memory
    cache_bytes: int
    cache_room_bytes: int  # of page cache left to others
    scale: float


def memories(hardware: Hardware, machine: Machine, pack: PackIndex, demand: Demand, scale_of: PackIndex | None) -> Memories:
    """The budgets of a run; for a scale model what the real model would leave for experts, times the ratio of expert bytes."""
    vram, vram_why = vram_limit(hardware, machine)
    ram, ram_why = ram_limit(hardware, machine)
    fixed = fixed_parts(pack, demand)
    cache, room = max(0, machine.ram_available_bytes - FILE_CACHE_ROOM), FILE_CACHE_ROOM
    if scale_of is None:
        return Memories(Memory("vram", vram, vram_why, fixed.vram), Memory("ram", ram, ram_why, fixed.ram), cache, room, 1.0)
    real = fixed_parts(scale_of, demand)
    return Memories(
        _scaled(Memory("vram", vram, vram_why, real.vram), fixed.vram, pack, scale_of),
        _scaled(Memory("ram", ram, ram_why, real.ram), fixed.ram, pack, scale_of),
        _shrink(cache, pack, scale_of),
        _shrink(room, pack, scale_of),
        pack.experts_bytes / scale_of.experts_bytes,
    )


def is_scaled(machine: Machine, scale_of: PackIndex | None) -> bool:
    """Only declared budgets shrink: a probed PC is its own size."""
    return scale_of is not None and not any(fact in machine.probed for fact in BUDGET_FACTS)


def vram_limit(hardware: Hardware, machine: Machine) -> tuple[int, str]:
    """Free VRAM less the reserve; 0 without a GPU. May be negative: the caller says how short it falls."""
    gpu = machine.gpu
    if gpu is None:
        return 0, "no GPU"
    free = min(gpu.free_bytes, gpu.vram_bytes)
    stated = hardware.gpu.reserve
    reserve = stated if isinstance(stated, int) else min(RESERVE[machine.os], gpu.vram_bytes // 8)
    source = "stated" if isinstance(stated, int) else "auto: at most an eighth of the card"
    return free - reserve, f"{gib(free)} free of {gib(gpu.vram_bytes)}, less {gib(reserve)} reserve ({source})"


def ram_limit(hardware: Hardware, machine: Machine) -> tuple[int, str]:
    """Available RAM less the headroom. May be negative: the caller says how short it falls."""
    available, stated = machine.ram_available_bytes, hardware.headroom
    headroom = stated if isinstance(stated, int) else min(HEADROOM, available // 8)
    source = "stated" if isinstance(stated, int) else f"auto: the smaller of {gib(HEADROOM)} and an eighth"
    return available - headroom, f"{gib(available)} available of {gib(machine.ram_bytes)}, less {gib(headroom)} headroom ({source})"


def shrink(num_bytes: int, pack: PackIndex, scale_of: PackIndex | None) -> int:
    """A size of the real model's PC, at the scale model's size."""
    return num_bytes if scale_of is None else _shrink(num_bytes, pack, scale_of)


def _scaled(real: Memory, fixed: tuple[Share, ...], pack: PackIndex, scale_of: PackIndex) -> Memory:
    # the real model's other parts weigh more or less beside its experts than the small one's, so only the experts' room is scaled
    room = _shrink(real.free_bytes, pack, scale_of)
    because = (
        f"{real.because}, less {gib(total(real.fixed))} that {scale_of.name} itself takes, leaves {gib(real.free_bytes)} for its experts; "
        f"at 1/{scale_of.experts_bytes / pack.experts_bytes:,.0f} {gib(room)}, plus {gib(total(fixed))} of {pack.name}'s own"
    )
    return Memory(real.name, room + total(fixed), because, fixed)


def _shrink(num_bytes: int, pack: PackIndex, scale_of: PackIndex) -> int:
    return num_bytes * pack.experts_bytes // scale_of.experts_bytes


def stands_in(machine: Machine) -> bool:
    """VRAM that was stated for this very PC, which has no GPU: it lies in the RAM that was probed."""
    found = [fact for fact in machine.probed if fact.startswith("gpu.") and not fact.endswith(ESTIMATED)]
    return machine.gpu is not None and "available" in machine.probed and not found
