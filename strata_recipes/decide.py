"""Config, machine and pack in, plan out: candidates are planned, timed, and the fastest that fits is kept. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from strata_recipes.config.choices import Order
from strata_recipes.config.schema import Config
from strata_recipes.errors import PlanError
from strata_recipes.machine.facts import Machine
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.budget import ARENA, BLOBS, SLOTS, STAGE, STAND_IN, START, kept_parts, total
from strata_recipes.plan.compute import plan_compute, plan_model
from strata_recipes.plan.decode import plan_decode
from strata_recipes.plan.experts import Placement, Room, Sizes, placements
from strata_recipes.plan.file_io import FileIoChoice, choose_file_io
from strata_recipes.plan.kv import plan_kv
from strata_recipes.plan.limits import is_scaled, shrink, stands_in
from strata_recipes.plan.notes import emulation, mtp_decision, notes, throttle
from strata_recipes.plan.plan import PLAN_VERSION, Budget, Decision, ExpertsPlan, OutputPlan, Plan, Share, StartupPlan
from strata_recipes.plan.prefill import ChosenOrder, FileReading, direct_choices, not_layer_major, plan_prefill
from strata_recipes.plan.requests import check_requests, unused
from strata_recipes.plan.sizing import Case, Shape, kept_shape, ram_left, shape_of
from strata_recipes.plan.startup import StartFacts, plan_startup, start_facts, strategies
from strata_recipes.plan.super_chunk import SuperChunk, super_chunks
from strata_recipes.plan.workload import estimated_tokens, plan_workload
from strata_recipes.schedule.startup import default_order
from strata_recipes.simulate.routing import DEFAULT_SKEW
from strata_recipes.simulate.simulate import Load, Timed, predict
from strata_recipes.simulate.startup import StartLoad, startup_s
from strata_recipes.units import figure, gib

DEFAULT_ORDER = "expert id, then layer"


@dataclass(frozen=True)
class Option:
    """One shape, placement and start-up with their budgets, how the file is read, and their times."""

    shape: Shape
    start: StartFacts
    start_load: StartLoad
    placement: Placement
    vram: Budget
    ram: Budget
    file_io: FileIoChoice
    reading: FileReading
    timed: Timed

    @property
    def rank(self) -> tuple[float, int, int]:
        """Faster first; of two alike the one that takes less RAM, then less VRAM for other things than experts."""
        others = self.vram.used_bytes - self.placement.vram_bytes
        return float(f"{self.timed.total_s:.6g}"), self.ram.used_bytes, others

    @property
    def order(self) -> str:
        return "chunked" if self.shape.super_chunk is None else "layer_major"

    def __str__(self) -> str:
        p = self.timed.prediction
        rates = f"{figure(p.prefill_s)} s prompt, {figure(p.decode_tokens_per_s)} tokens/s"
        held = f" of {gib(self.placement.ram_bytes)}" if self.placement.mode == "budget" else ""
        start = f", {self.start_load.strategy} start" if self.start.moved_bytes else ""
        return f"{self.placement.mode}{held}{start} {figure(self.timed.total_s)} s ({figure(p.ready_s)} s ready, {rates})"


def build_plan(
    config: Config,
    machine: Machine,
    pack: PackIndex,
    prompt_tokens: int | None = None,
    *,
    scale_of: PackIndex | None = None,
    order: Sequence[tuple[int, int]] | None = None,
) -> Plan:
    """The plan of a run; ConfigError or PlanError where there is none.

    `prompt_tokens` None: estimated, and said so. `scale_of`: the index of model.scale_of, used where budgets are declared.
    `order`: the pack's profile, hottest first; None: expert id, then layer.
    """
    tokens = estimated_tokens(config.workload) if prompt_tokens is None else prompt_tokens
    check_requests(config, machine, pack, tokens)
    case = Case(config, machine, pack, tokens, scale_of if is_scaled(machine, scale_of) else None)
    found, why = _all_options(case, Sizes(pack, default_order(pack) if order is None else order))
    counted = prompt_tokens is not None or plan_workload(config.workload).source == "tokens"
    return _plan(case, sorted(found, key=lambda option: option.rank), why, counted)


def _all_options(case: Case, sizes: Sizes) -> tuple[list[Option], str | None]:
    """Every order and placement with every start-up that applies to it, and why layer-major is not among them where it is not.

    Under auto an unbuffered start whose buffers do not fit is none.
    """
    asked = strategies(case.config.startup)
    found: list[Option] = []
    reasons: list[str] = []
    for strategy in asked:
        try:
            options, why = _both_orders(case, strategy, sizes)
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
    return (layer_major if case.config.prefill.order is Order.layer_major else found), None


def _applies(option: Option) -> bool:
    """Nothing to copy: no buffers for it. A file tier read past the page cache: the start with it."""
    if not option.start.moved_bytes:
        return option.start_load.strategy == "mapped"
    return option.start_load.strategy == "unbuffered" or option.file_io.value == "buffered"


def _both_orders(case: Case, strategy: str, sizes: Sizes) -> tuple[list[Option], str | None]:
    """The options of the orders that the config allows, and why layer-major is not among them where it is not."""
    base, asked = shape_of(case, strategy), case.config.prefill
    chunked = _options(case, base, strategy, sizes)
    if asked.order is Order.chunked:
        return chunked, None
    everything = case.pack.geometry.total_experts
    why = not_layer_major(case.prompt_tokens, base.chunk, any(option.placement.vram_slots == everything for option in chunked))
    if why:
        return chunked, why
    fitting: dict[SuperChunk, Shape] = {}

    def fits(super_chunk: SuperChunk) -> bool:
        shape = kept_shape(case, base, super_chunk)
        if shape is None or not _holds_experts(case, shape, sizes):
            return False
        fitting[super_chunk] = shape
        return True

    def options(super_chunk: SuperChunk) -> list[Option]:
        """Where the file keeps experts that are read ahead, with the buffers for it if there is room for them."""
        plain = _options(case, fitting[super_chunk], strategy, sizes)
        shape = kept_shape(case, base, super_chunk, ahead=True) if asked.prefetch else None
        if shape is None or not _holds_experts(case, shape, sizes):
            return plain
        ahead = [option for option in _options(case, shape, strategy, sizes) if option.placement.file_blobs]
        return [option for option in plain if not option.placement.file_blobs] + ahead or plain

    kept = super_chunks(asked, base.chunk, case.prompt_tokens, case.machine.gpu is not None, fits)
    if not kept:
        least = gib(total(kept_parts(case.pack.geometry, 2 * base.chunk)))
        return chunked, f"two chunks of {base.chunk:,} tokens keep {least}, which does not fit with a margin of {gib(asked.margin)}"
    found = [option for one in kept for option in options(one)]
    return (found if asked.order is Order.layer_major else chunked + found), None


def _holds_experts(case: Case, shape: Shape, sizes: Sizes) -> bool:
    """Whether what a super-chunk keeps leaves enough to the placement that the config states."""
    try:
        _placements(case, shape, sizes)
    except PlanError:
        return False
    return True


def _options(case: Case, shape: Shape, strategy: str, sizes: Sizes) -> list[Option]:
    return [option for placement in _placements(case, shape, sizes) for option in _placed(case, shape, strategy, placement)]


def _placements(case: Case, shape: Shape, sizes: Sizes) -> list[Placement]:
    found, gpu = shape.memories, case.machine.gpu is not None
    in_ram = not gpu or stands_in(case.machine)
    room = Room(found.vram.free_bytes, ram_left(case, found), gpu, in_ram)
    asked = dataclasses.replace(case.config.experts, ram_budget=_ram_budget(case))
    return placements(asked, sizes, room)


def _ram_budget(case: Case) -> int | None:
    stated = case.config.experts.ram_budget
    return None if stated is None else shrink(stated, case.pack, case.scale_of)


def _placed(case: Case, shape: Shape, strategy: str, placement: Placement) -> list[Option]:
    """One placement, with each way of reading the file for the prompt."""
    vram, ram = _budgets(case, shape, placement)
    facts = start_facts(placement, case.machine, ram, case.pack.experts_file_bytes)
    start = StartLoad(
        strategy if facts.moved_bytes else "mapped", placement.vram_bytes, placement.ram_bytes, facts.kept_share, facts.purge_s
    )
    found = shape.memories
    asked, cache = case.config.experts.file_io.value, found.cache_bytes
    file_io = choose_file_io(asked, case.machine.os, cache, ram.used_bytes, placement.file_bytes, found.cache_room_bytes)
    ways = direct_choices(case.config.prefill, file_io.value, placement.file_blobs, case.machine.os)
    load = Load(
        placement.vram_slots,
        placement.ram_blobs,
        placement.file_blobs,
        start,
        file_io.value,
        max(0, cache - ram.used_bytes),
        bool(case.pack.profile_id),
        _skew(case),
        case.prompt_tokens,
        shape.chunk,
        case.config.decode.max_new_tokens,
        case.config.kv.format.value,
        None if shape.super_chunk is None else shape.super_chunk.tokens,
        shape.super_chunk is not None and shape.super_chunk.residuals == "host",
    )
    return [
        Option(
            shape,
            facts,
            start,
            placement,
            vram,
            ram,
            file_io,
            way,
            predict(case.pack, case.machine, dataclasses.replace(load, prompt_io="direct" if way.direct else "buffered")),
        )
        for way in ways
    ]


def _budgets(case: Case, shape: Shape, placement: Placement) -> tuple[Budget, Budget]:
    vram, ram = shape.memories.vram, shape.memories.ram
    slots = Share(SLOTS, placement.vram_bytes)
    if case.machine.gpu is None:  # slots are an arena in RAM: both budgets name it
        of_vram = Budget("vram", placement.vram_bytes, "no GPU: slots are an arena in RAM, counted in the RAM budget", (slots,))
        there = Share(ARENA, placement.vram_bytes)
    else:
        of_vram = Budget("vram", vram.limit_bytes, vram.because, (*vram.fixed, slots))
        there = Share(STAND_IN, of_vram.used_bytes if stands_in(case.machine) else 0)
    fixed = ram.fixed if placement.vram_bytes + placement.ram_bytes else [part for part in ram.fixed if part.name != START]
    parts = [*fixed, there, Share(BLOBS, placement.ram_bytes)]
    return of_vram, Budget("ram", ram.limit_bytes, ram.because, tuple(part for part in parts if part.num_bytes))


def _plan(case: Case, options: list[Option], why: str | None, counted: bool) -> Plan:
    config, machine, pack, best = case.config, case.machine, case.pack, options[0]
    place, shape, g = best.placement, best.shape, pack.geometry
    new_tokens = config.decode.max_new_tokens
    compute, compute_why = plan_compute(config.compute, machine)
    startup, startup_why = _startup(case, best)
    order = ChosenOrder(best.order, _order_because(case, options, why))
    prefill, prefill_why = plan_prefill(
        config.prefill,
        g,
        shape.chunk,
        shape.rows,
        shape.context,
        case.prompt_tokens,
        order,
        shape.super_chunk,
        best.reading,
        best.file_io.value,
        place.file_bytes,
        best.ram.part(STAGE),
    )
    kv, kv_why = plan_kv(config.kv, g, shape.context, case.prompt_tokens, new_tokens, pack.experts_bytes / g.total_experts)
    mtp = mtp_decision(pack, kv.format, kv.max_context)
    decisions = [*_expert_decisions(case, options), startup_why, *prefill_why, kv_why, *compute_why, *([mtp] if mtp else [])]
    return Plan(
        version=PLAN_VERSION,
        hardware=machine.name,
        os=machine.os,
        model=plan_model(config.model, pack, shape.memories.scale),
        vram_slots=place.vram_slots,
        ram_blobs=place.ram_blobs,
        file_blobs=place.file_blobs,
        vram=best.vram,
        ram=best.ram,
        experts=_experts_plan(case, best),
        startup=startup,
        prefill=prefill,
        decode=plan_decode(config.decode),
        kv=kv,
        compute=compute,
        workload=plan_workload(config.workload),
        output=OutputPlan(config.results.logits.value),
        emulate=emulation(case),
        throttle=throttle(case),
        predicted=best.timed.prediction,
        decisions=tuple(decisions),
        notes=(*notes(case, shape, counted), *_routing_notes(case, best), *unused(config, machine, place.file_blobs, best.file_io.value)),
    )


def _startup(case: Case, best: Option) -> tuple[StartupPlan, Decision]:
    load, stage = best.start_load, best.ram.part(START)
    seconds = {name: startup_s(case.machine, dataclasses.replace(load, strategy=name)) for name in ("mapped", "unbuffered")}
    return plan_startup(case.config.startup, best.placement, case.machine, best.start, load.strategy, best.file_io.value, seconds, stage)


def _experts_plan(case: Case, best: Option) -> ExpertsPlan:
    place = best.placement
    return ExpertsPlan(
        mode=place.mode,
        order=case.pack.profile_id or DEFAULT_ORDER,
        vram_bytes=place.vram_bytes,
        ram_bytes=place.ram_bytes,
        file_bytes=place.file_bytes,
        file_io=best.file_io.value,
        file_io_threshold_bytes=best.file_io.threshold_bytes,
        verify=case.config.experts.verify,
        ram_start=place.ram_start if place.ram_start < place.vram_slots else None,
    )


def _expert_decisions(case: Case, options: list[Option]) -> list[Decision]:
    best, asked = options[0], case.config.experts
    place = best.placement
    same = [option for option in options[1:] if option.order == best.order and option.placement.mode != best.placement.mode]
    others = f"then {same[0]}" if same else "nothing else fits"
    mode = f"auto: {best}, {others}" if asked.mode.value == "auto" else f"stated: {best}"
    return [
        Decision("experts.mode", place.mode, mode),
        _slots_decision(case, best),
        _ram_decision(case, best),
        best.file_io.decision,
    ]


def _order_because(case: Case, options: list[Option], why: str | None) -> str:
    """Both orders' predicted times, or why there is only one."""
    asked, best = case.config.prefill.order, options[0]
    if asked is Order.chunked:
        return f"stated; {figure(best.timed.prediction.prefill_s)} s predicted for the prompt"
    if why:
        return f"{'auto' if asked is Order.auto else 'layer_major was stated and is not used'}: {why}"
    if asked is Order.layer_major:
        return f"stated; {figure(best.timed.prediction.prefill_s)} s predicted for the prompt"
    times = [
        f"{option.order} {figure(option.timed.total_s)} s ({figure(option.timed.prediction.prefill_s)} s prompt)"
        for option in (best, *[option for option in options if option.order != best.order][:1])
    ]
    return f"auto: {times[0]} of start, prompt and reply, then {times[1] if times[1:] else 'nothing else fits'}"


def _slots_decision(case: Case, best: Option) -> Decision:
    place, total_experts = best.placement, case.pack.geometry.total_experts
    if case.machine.gpu is None:
        why = "no GPU, so no slots" if not place.vram_slots else "stated; without a GPU they are an arena in RAM"
    else:
        how = "stated" if isinstance(case.config.experts.slots, int) else "auto"
        left = best.shape.memories.vram.free_bytes
        parts = gib(total(best.shape.memories.vram.fixed))
        why = (
            f"{how}: {gib(best.vram.limit_bytes)} of VRAM less {parts} of other parts leave {gib(left)}, slots take {gib(place.vram_bytes)}"
        )
    return Decision("experts.slots", place.vram_slots, f"{why}; {place.vram_slots / total_experts:.1%} of {total_experts:,} experts")


def _ram_decision(case: Case, best: Option) -> Decision:
    place, ram = best.placement, best.ram
    left = ram.limit_bytes - ram.used_bytes
    held = f"{gib(place.ram_bytes)} of experts in a budget of {gib(ram.limit_bytes)}, {gib(left)} of it left"
    why = f"{held}; {gib(place.file_bytes)} stay in the file"
    if case.config.experts.ram_budget is not None:
        why = f"experts.ram_budget={gib(case.config.experts.ram_budget)}{' at scale' if case.scale_of else ''}: {why}"
    return Decision("experts.ram_blobs", place.ram_blobs, why)


def _routing_notes(case: Case, best: Option) -> list[str]:
    skew, share = _skew(case), best.timed.vram_hit_share
    source = (
        "stated"
        if case.config.model.skew is not None
        else "the profile's"
        if case.pack.skew is not None
        else "the seed model's, not measured on this one"
    )
    heat = f"predicted with a router skew of {skew:g} ({source})"
    if not case.pack.profile_id:
        return [f"{heat}; without a profile slots are filled by expert id, so {share:.0%} of a token's choices find one"]
    return [f"{heat}; slots hold the hottest, so {share:.0%} of a token's choices find one"]


def _skew(case: Case) -> float:
    """As stated; else as the profile shows it."""
    found = case.config.model.skew if case.config.model.skew is not None else case.pack.skew
    return DEFAULT_SKEW if found is None else float(found)
