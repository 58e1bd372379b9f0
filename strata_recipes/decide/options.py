"""Candidates of a plan: every order, placement and start-up that a config allows and a PC holds, each with its predicted times."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from strata_recipes.config.choices import Dense, Order
from strata_recipes.config.schema import Prefill
from strata_recipes.decide.loads import load_of, start_load
from strata_recipes.errors import PlanError
from strata_recipes.plan.adapt import exchanges
from strata_recipes.plan.budget import ARENA, BLOBS, EXCHANGE, SLOTS, STAND_IN, START, kept_parts, total
from strata_recipes.plan.experts import Placement, Room, Sizes, placements
from strata_recipes.plan.file_io import FileIoChoice, choose_file_io
from strata_recipes.plan.limits import shrink, stands_in
from strata_recipes.plan.plan import Budget, Share
from strata_recipes.plan.prefill import FileReading, chunk_candidates, direct_choices, not_layer_major
from strata_recipes.plan.sizing import Case, Shape, kept_shape, ram_left, shape_at, shape_of
from strata_recipes.plan.startup import StartFacts, start_facts, strategies
from strata_recipes.plan.super_chunk import SuperChunk, super_chunks
from strata_recipes.simulate.load import Load
from strata_recipes.simulate.simulate import Simulator, Timed
from strata_recipes.units import figure, gib


@dataclass(frozen=True)
class Search:
    """The inputs, the order's sizes, and one simulator for all candidates."""

    case: Case
    sizes: Sizes
    simulator: Simulator


@dataclass(frozen=True)
class Option:
    """One shape, placement and start-up with their budgets, how the file is read, and their times."""

    shape: Shape
    start: StartFacts
    placement: Placement
    vram: Budget
    ram: Budget
    file_io: FileIoChoice
    reading: FileReading
    load: Load
    timed: Timed
    only_told: bool = False  # on a smaller grid than one that keeps the whole prompt: a number beside it, never chosen

    @property
    def rank(self) -> tuple[bool, float, int, int]:
        """Faster first; of two alike the one that takes less RAM, then less VRAM for other things than experts."""
        others = self.vram.used_bytes - self.placement.vram_bytes
        return self.only_told, float(f"{self.timed.total_s:.6g}"), self.ram.used_bytes, others

    @property
    def order(self) -> str:
        return "chunked" if self.shape.super_chunk is None else "layer_major"

    def __str__(self) -> str:
        p = self.timed.prediction
        rates = f"{figure(p.prefill_s)} s prompt, {figure(p.decode_tokens_per_s)} tokens/s"
        held = f" of {gib(self.placement.ram_bytes)}" if self.placement.mode == "budget" else ""
        start = f", {self.load.start.strategy} start" if self.start.moved_bytes else ""
        return f"{self.placement.mode}{held}{start} {figure(self.timed.total_s)} s ({figure(p.ready_s)} s ready, {rates})"


def all_options(search: Search) -> tuple[list[Option], str | None]:
    """Every order and placement with every start-up that applies to it, and why layer-major is not among them where it is not.

    Under auto an unbuffered start whose buffers do not fit is none.
    """
    config = search.case.config
    asked = strategies(config.startup)
    found: list[Option] = []
    reasons: list[str] = []
    for strategy in asked:
        try:
            options, why = _both_orders(search, strategy)
        except PlanError:
            if not found:
                raise
            continue
        found += options
        reasons += [why] if why else []
    if len(asked) > 1:
        found = [option for option in found if _applies(option)] or found
    layer_major = [option for option in found if option.order == "layer_major"]
    if not layer_major:
        return found, reasons[0] if reasons else None
    return (layer_major if config.prefill.order is Order.layer_major else found), None


def _applies(option: Option) -> bool:
    """Nothing to copy: no buffers for it. A file tier read past the page cache: the start with it."""
    if not option.start.moved_bytes:
        return option.load.start.strategy == "mapped"
    return option.load.start.strategy == "unbuffered" or option.file_io.value == "buffered"


def _both_orders(search: Search, strategy: str) -> tuple[list[Option], str | None]:
    """The options of the orders that the config allows, and why layer-major is not among them where it is not."""
    case = search.case
    base, asked = shape_of(case, strategy), case.config.prefill
    chunked = _options(search, base, strategy)
    if asked.order is Order.chunked:
        return chunked, None
    everything = case.pack.geometry.total_experts
    why = not_layer_major(case.prompt_tokens, base.chunk, any(option.placement.vram_slots == everything for option in chunked))
    if why:
        return chunked, why
    found: list[Option] = []
    reasons = []
    told = False
    for chunk in chunk_candidates(asked):  # with dense weights streamed a larger grid than chunked order's may fit
        options, why = _layer_major(search, strategy, shape_at(case, strategy, chunk), asked)
        found += [dataclasses.replace(option, only_told=told) for option in options]
        reasons += [why] if why else []
        whole = {kept.dense for option in options if (kept := option.shape.super_chunk) and kept.tokens >= case.prompt_tokens}
        if "resident" in whole or (whole and asked.dense is Dense.streamed):
            break  # a smaller grid is for those who lack the room to keep the prompt beside the larger one's buffers
        if whole and asked.dense is Dense.auto:
            asked, told = dataclasses.replace(asked, dense=Dense.resident), True  # what the streamed one is weighed against
    if not found:
        return chunked, reasons[0]
    return (found if asked.order is Order.layer_major else chunked + found), None


def _layer_major(search: Search, strategy: str, base: Shape, asked: Prefill) -> tuple[list[Option], str | None]:
    """Its options on one grid, or why there are none."""
    case = search.case
    fitting: dict[SuperChunk, Shape] = {}

    def fits(super_chunk: SuperChunk) -> bool:
        shape = kept_shape(case, base, super_chunk)
        if shape is None or not _holds_experts(search, shape):
            return False
        fitting[super_chunk] = shape
        return True

    def options(super_chunk: SuperChunk) -> list[Option]:
        """Where the file keeps experts that are read ahead, with the buffers for it if there is room for them."""
        plain = _options(search, fitting[super_chunk], strategy)
        shape = kept_shape(case, base, super_chunk, ahead=True) if asked.prefetch else None
        if shape is None or not _holds_experts(search, shape):
            return plain
        ahead = [option for option in _options(search, shape, strategy) if option.placement.file_blobs]
        return [option for option in plain if not option.placement.file_blobs] + ahead or plain

    kept = super_chunks(asked, base.chunk, case.prompt_tokens, case.machine.gpu is not None, fits)
    if not kept:
        least = gib(total(kept_parts(case.pack.geometry, 2 * base.chunk)))
        return [], f"two chunks of {base.chunk:,} tokens keep {least}, which does not fit with a margin of {gib(asked.margin)}"
    return [option for one in kept for option in options(one)], None


def _holds_experts(search: Search, shape: Shape) -> bool:
    """Whether what a super-chunk keeps leaves enough to the placement that the config states."""
    try:
        _placements(search, shape)
    except PlanError:
        return False
    return True


def _options(search: Search, shape: Shape, strategy: str) -> list[Option]:
    return [option for placement in _placements(search, shape) for option in _placed(search, shape, strategy, placement)]


def _placements(search: Search, shape: Shape) -> list[Placement]:
    case, found = search.case, shape.memories
    gpu = case.machine.gpu is not None
    in_ram = not gpu or stands_in(case.machine)
    room = Room(found.vram.free_bytes, ram_left(case, found), gpu, in_ram)
    asked = dataclasses.replace(case.config.experts, ram_budget=_ram_budget(case))
    return placements(asked, search.sizes, room)


def _ram_budget(case: Case) -> int | None:
    stated = case.config.experts.ram_budget
    return None if stated is None else shrink(stated, case.pack, case.scale_of)


def _placed(search: Search, shape: Shape, strategy: str, placement: Placement) -> list[Option]:
    """One placement, with each way of reading the file for the prompt."""
    case, found = search.case, shape.memories
    vram, ram = _budgets(case, shape, placement)
    facts = start_facts(placement, case.machine, ram, case.pack.experts_file_bytes)
    start = start_load(case, strategy, placement, facts)
    asked = case.config.experts.file_io.value
    file_io = choose_file_io(asked, case.machine.os, found.cache_bytes, ram.used_bytes, placement.file_bytes, found.cache_room_bytes)
    options = []
    for way in direct_choices(case.config.prefill, file_io.value, placement.file_blobs, case.machine.os):
        load = load_of(case, shape, placement, start, file_io.value, way, ram)
        options.append(Option(shape, facts, placement, vram, ram, file_io, way, load, search.simulator.predict(load)))
    return options


def _budgets(case: Case, shape: Shape, placement: Placement) -> tuple[Budget, Budget]:
    vram, ram = shape.memories.vram, shape.memories.ram
    slots = Share(SLOTS, placement.vram_bytes)
    if case.machine.gpu is None:  # slots are an arena in RAM: both budgets name it
        of_vram = Budget("vram", placement.vram_bytes, "no GPU: slots are an arena in RAM, counted in the RAM budget", (slots,))
        there = Share(ARENA, placement.vram_bytes)
    else:
        of_vram = Budget("vram", vram.limit_bytes, vram.because, (*vram.fixed, slots))
        there = Share(STAND_IN, of_vram.used_bytes if stands_in(case.machine) else 0)
    needless = ([] if placement.vram_bytes + placement.ram_bytes else [START]) + ([] if exchanges(placement) else [EXCHANGE])
    fixed = [part for part in ram.fixed if part.name not in needless]
    parts = [*fixed, there, Share(BLOBS, placement.ram_bytes)]
    return of_vram, Budget("ram", ram.limit_bytes, ram.because, tuple(part for part in parts if part.num_bytes))
