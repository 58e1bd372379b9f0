"""What the next-better PC would do with the same config: more RAM, a larger card, a faster drive, each planned and simulated. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from strata_recipes.errors import PlanError
from strata_recipes.machine.facts import Machine
from strata_recipes.plan.plan import Plan, Prediction
from strata_recipes.units import GiB, figure

MORE_RAM = 8 * GiB
CARDS_GIB = (4, 6, 8, 12, 16, 24, 32, 48, 80, 141)  # sizes that are sold
RAM_STEPS = (1, 2, 4, 8, 16)  # times MORE_RAM, where nothing fits
WORTH = 1.05  # a gain under this is none to a reader
Planner = Callable[[Machine], Plan]


@dataclass(frozen=True)
class WhatIf:
    """One change and what it predicts; None where even that does not fit."""

    change: str
    predicted: Prediction | None


def changes(machine: Machine) -> Iterator[tuple[str, Machine]]:
    """One thing better at a time."""
    yield more_ram(machine, MORE_RAM)
    yield from list(larger_cards(machine))[:1]
    drive = machine.drive
    faster = dataclasses.replace(drive, direct=2 * drive.direct, faults=2 * drive.faults)
    yield "a drive twice as fast", dataclasses.replace(machine, drive=faster)


def more_ram(machine: Machine, num_bytes: int) -> tuple[str, Machine]:
    ram, available = machine.ram_bytes + num_bytes, machine.ram_available_bytes + num_bytes
    return f"{num_bytes // GiB} GiB more RAM", dataclasses.replace(machine, ram_bytes=ram, ram_available_bytes=available)


def larger_cards(machine: Machine) -> Iterator[tuple[str, Machine]]:
    gpu = machine.gpu
    for size in CARDS_GIB if gpu is not None else ():
        assert gpu is not None
        if (extra := size * GiB - gpu.vram_bytes) > 0:
            card = dataclasses.replace(gpu, vram_bytes=size * GiB, free_bytes=gpu.free_bytes + extra)
            yield f"a card of {size} GiB, as fast", dataclasses.replace(machine, gpu=card)


def what_if(machine: Machine, plan: Planner) -> list[WhatIf]:
    return [WhatIf(change, _predicted(better, plan)) for change, better in changes(machine)]


def remedies(machine: Machine, plan: Planner) -> list[WhatIf]:
    """Where nothing fits: the least RAM more that alone would do, else the smallest card that would."""
    better_ones = (*(more_ram(machine, times * MORE_RAM) for times in RAM_STEPS), *larger_cards(machine))
    found = (WhatIf(change, _predicted(better, plan)) for change, better in better_ones)
    first = next((one for one in found if one.predicted is not None), None)
    return [] if first is None else [first]


def _predicted(machine: Machine, plan: Planner) -> Prediction | None:
    try:
        return plan(machine).predicted
    except PlanError:
        return None


def gains(now: Prediction, then: Prediction) -> str:
    """`ready 22.3 -> 18.1 s, decode 19 -> 27 tokens/s`; empty where nothing is worth telling."""
    parts = []
    if now.ready_s > then.ready_s * WORTH:
        parts.append(f"ready {figure(now.ready_s)} -> {figure(then.ready_s)} s")
    for name, a, b in (
        ("prompt", now.prefill_tokens_per_s, then.prefill_tokens_per_s),
        ("decode", now.decode_tokens_per_s, then.decode_tokens_per_s),
    ):
        if b > a * WORTH:
            parts.append(f"{name} {figure(a)} -> {figure(b)} tokens/s")
    return ", ".join(parts)
