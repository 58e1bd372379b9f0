"""The largest grid and the context that a PC's budgets hold, before experts. Raises PlanError where none fits."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from strata_recipes.config.choices import Logits
from strata_recipes.config.schema import Config
from strata_recipes.errors import PlanError
from strata_recipes.machine.facts import Machine
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.budget import Demand, StartDemand, total
from strata_recipes.plan.decode import draft_tokens
from strata_recipes.plan.kv import max_context
from strata_recipes.plan.limits import Memories, Memory, memories, shrink, stands_in
from strata_recipes.plan.prefill import chunk_candidates
from strata_recipes.plan.super_chunk import SuperChunk
from strata_recipes.units import gib, mib

AHEAD_SHARE = 8  # of RAM, at most, for what is read ahead of its layer


@dataclass(frozen=True)
class Case:
    """The inputs of a plan. `scale_of` is None unless budgets shrink."""

    config: Config
    machine: Machine
    pack: PackIndex
    prompt_tokens: int
    scale_of: PackIndex | None


@dataclass(frozen=True)
class Shape:
    """Grid, context and the budgets they leave."""

    chunk: int
    rows: int
    context: int
    memories: Memories
    start: StartDemand | None
    super_chunk: SuperChunk | None = None  # of layer-major order


def start_demand(case: Case, strategy: str) -> StartDemand | None:
    """Memory of an unbuffered start: `depth` fill batches, where there can be slots at all."""
    if strategy != "unbuffered":
        return None
    asked, slots = case.config.startup, case.config.experts.slots
    filled = case.pack.geometry.total_experts if not isinstance(slots, int) else slots
    if case.machine.gpu is None and not isinstance(slots, int):
        filled = 0
    return StartDemand(asked.threads, asked.depth * min(asked.fill_batch, filled))


def shape_of(case: Case, strategy: str) -> Shape:
    """The first chunk candidate whose parts fit; PlanError names budget, shortfall and the largest context that fits."""
    for chunk in chunk_candidates(case.config.prefill):
        shape = shape_at(case, strategy, chunk)
        if _short(case, shape) is None:
            return shape
    raise PlanError(_message(case, shape))


def shape_at(case: Case, strategy: str, chunk: int) -> Shape:
    """The shape on this grid, whether it fits or not."""
    context = max_context(case.config.kv, case.pack.geometry, case.prompt_tokens, case.config.decode.max_new_tokens, chunk)
    return _shape(case, chunk, context, start_demand(case, strategy))


def kept_shape(case: Case, base: Shape, super_chunk: SuperChunk, ahead: bool = False) -> Shape | None:
    """The same grid and context with what a super-chunk keeps; None where that leaves less than prefill.margin to experts.

    `ahead`: with buffers for a layer's experts, as far as an eighth of the RAM holds them.
    """
    shape = dataclasses.replace(_shape(case, base.chunk, base.context, base.start, super_chunk, ahead), super_chunk=super_chunk)
    margin, gpu = shrink(case.config.prefill.margin, case.pack, case.scale_of), case.machine.gpu is not None
    if gpu and shape.memories.vram.free_bytes < margin:
        return None
    return shape if ram_left(case, shape.memories) >= (0 if gpu and super_chunk.residuals == "vram" else margin) else None


def ram_left(case: Case, found: Memories) -> int:
    """RAM left for experts, once VRAM's own parts stand in it where they must."""
    stand_in = total(found.vram.fixed) if stands_in(case.machine) else 0
    return found.ram.free_bytes - stand_in


def _shape(case: Case, chunk: int, context: int, start: StartDemand | None, kept: SuperChunk | None = None, ahead: bool = False) -> Shape:
    rows = min(chunk, case.prompt_tokens)
    logits = case.prompt_tokens if case.config.results.logits is Logits.all else 1  # kept until they are written
    device = "cpu" if case.machine.gpu is None else "cuda"
    asked = case.config.kv
    resident = asked.resident_tokens if isinstance(asked.resident_tokens, int) else None
    demand = Demand(device, case.config.compute.arithmetic.value, asked.format.value, context, rows, logits, start, resident=resident)
    demand = dataclasses.replace(demand, draft_tokens=draft_tokens(case.config.decode))
    if case.config.experts.adapt.every:
        demand = dataclasses.replace(demand, exchange=True)
    if kept is not None:
        tokens, streamed = min(kept.tokens, case.prompt_tokens), kept.dense == "streamed"
        demand = dataclasses.replace(demand, kept_tokens=tokens, residuals=kept.residuals, streamed=streamed)
    if ahead:
        demand = dataclasses.replace(demand, ahead_bytes=case.machine.ram_available_bytes // AHEAD_SHARE)
    found = memories(case.config.hardware, case.machine, case.pack, demand, case.scale_of)
    return Shape(chunk, rows, context, found, start)


def _short(case: Case, shape: Shape) -> tuple[Memory, int] | None:
    """The budget that falls short and by how many bytes."""
    vram, ram = shape.memories.vram, shape.memories.ram
    if case.machine.gpu is not None and vram.free_bytes < 0:
        return vram, -vram.free_bytes
    left = ram_left(case, shape.memories)
    return (ram, -left) if left < 0 else None


def _message(case: Case, shape: Shape) -> str:
    short = _short(case, shape)
    assert short is not None
    memory, missing = short
    parts = ", ".join(f"{part.name} {gib(part.num_bytes)}" for part in sorted(memory.fixed, key=lambda p: -p.num_bytes) if part.num_bytes)
    knob = "hardware.gpu.reserve" if memory.name == "vram" else "hardware.headroom"
    most = _largest_context(case, shape)
    if most >= 1:
        advice = f"the largest kv.max_context that fits is {most:,}, of {shape.context:,} wanted"
    else:
        advice = f"no kv.max_context fits: lower {knob} or prefill.chunk, or plan for more {memory.name}"
    return f"{memory.name} is short by {mib(missing)} before any expert ({memory.because}; {parts}): {advice}"


def _largest_context(case: Case, shape: Shape) -> int:
    """By bisection over the same sums that plan and run use."""
    fits, fails = 0, shape.context
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if _short(case, _shape(case, shape.chunk, middle, shape.start)) is None:
            fits = middle
        else:
            fails = middle
    return fits
