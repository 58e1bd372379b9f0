"""Loads and machines that the simulator's tests share."""

from __future__ import annotations

import dataclasses
from typing import Any

from strata_recipes.machine.facts import Efficiency, Machine
from strata_recipes.simulate.load import Load, MemoryLoad, PromptLoad, ReplyLoad, StartLoad, TierLoad
from strata_recipes.simulate.simulate import Timed, predict
from tests.plan.cases import composed, index_of

PACK = index_of("qwen38_flash_next_q2_0")
BLOB = 1_382_400
STRIDE = 1_384_448
FREE = 1e30  # a rate that costs nothing


def load(**changes: Any) -> Load:
    """The laptop's chunked order through the page cache; a field's name says which part it is of."""
    parts = {
        "start": StartLoad("mapped", 0, 0, 0.0, 0.0),
        "tiers": TierLoad(0, 0, 24_576, True, 0.45, 0.0, 0),
        "prompt": PromptLoad(12_900, 512, None, False, False, False, 8.0),
        "reply": ReplyLoad(256, "q4_0", False),
        "memory": MemoryLoad(24 << 30, 1 << 30, 0),
    }
    for name, value in changes.items():
        owner = next(key for key, part in parts.items() if name in {f.name for f in dataclasses.fields(part)})
        parts[owner] = dataclasses.replace(parts[owner], **{name: value})  # type: ignore[type-var]
    return Load(**parts)  # type: ignore[arg-type]


def laptop(**rates: float) -> Machine:
    """The profile, with other rates as `drive__direct=1e9`."""
    pc = dataclasses.replace(composed("hardware=rtx3060_6gb")[1], efficiency=Efficiency(), start_s=0.0)
    for name, value in rates.items():
        group, field = name.split("__")
        pc = dataclasses.replace(pc, **{group: dataclasses.replace(getattr(pc, group), **{field: value})})
    return pc


def timed(pc: Machine | None = None, **changes: Any) -> Timed:
    return predict(PACK, pc or laptop(), load(**changes))
