"""Whether this PC can hold a plan now: what the run will take of its RAM against what there is. Allocates nothing."""

from __future__ import annotations

from strata_recipes.errors import DeviceError
from strata_recipes.machine.memory import Available
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.budget import AFTERWARDS, DENSE, F32_BYTES, ON_CALL, dense_values
from strata_recipes.plan.plan import Plan
from strata_recipes.units import gib, mib


def ram_needed(plan: Plan, index: PackIndex) -> int:
    """RAM that a run of this plan takes here. Where the CPU stands in for a card, VRAM lies in RAM, dense weights as float32."""
    if plan.compute.device == plan.compute.runs_on:
        return plan.ram.used_bytes
    on_card = plan.vram.part(DENSE) + plan.vram.part(AFTERWARDS) + plan.ram.part(ON_CALL)
    return plan.ram.used_bytes + plan.vram.used_bytes - on_card + dense_values(index) * F32_BYTES


def check_holds(plan: Plan, index: PackIndex, available: Available) -> None:
    """DeviceError with both numbers where the plan does not fit this PC now."""
    needed = ram_needed(plan, index)
    if needed > available.num_bytes:
        raise DeviceError(
            f"this plan takes {gib(needed)} of RAM on this PC and {gib(available.num_bytes)} is available ({available.limited_by}), "
            f"{mib(needed - available.num_bytes)} short: close programs, use experts=mapped, or lower kv.max_context"
        )
