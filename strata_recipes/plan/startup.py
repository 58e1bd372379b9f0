"""How experts get to their places. Knows sizes and rates, no file."""

from __future__ import annotations

from strata_recipes.machine.facts import Machine
from strata_recipes.plan.experts import Placement
from strata_recipes.plan.plan import Decision, StartupPlan
from strata_recipes.units import figure, gb_per_s, gib


def plan_startup(placement: Placement, machine: Machine) -> tuple[StartupPlan, Decision]:
    """Mapped copies, with what direct reads would take."""
    moved, drive = placement.vram_bytes + placement.ram_bytes, machine.drive
    because = (
        f"the start-up that this version has; {gib(moved)} through page faults at {gb_per_s(drive.faults)} are "
        f"{figure(moved / drive.faults)} s, direct reads at {gb_per_s(drive.direct)} would be {figure(moved / drive.direct)} s"
    )
    return StartupPlan("mapped", placement.vram_bytes, placement.ram_bytes), Decision("startup.strategy", "mapped", because)
