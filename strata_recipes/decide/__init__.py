"""Config, machine and pack in, plan out: candidates are planned, timed, and the fastest that fits is kept. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strata_recipes.config.schema import Config
from strata_recipes.decide.options import Option, Search, all_options
from strata_recipes.decide.reasons import dense_because, expert_decisions, order_because, routing_notes, startup
from strata_recipes.machine.facts import Machine
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.adapt import NOTE, plan_adapt
from strata_recipes.plan.budget import STAGE
from strata_recipes.plan.compute import plan_compute, plan_model
from strata_recipes.plan.decode import draft_decision, draft_notes, plan_decode
from strata_recipes.plan.experts import Sizes
from strata_recipes.plan.kv import plan_kv
from strata_recipes.plan.limits import is_scaled
from strata_recipes.plan.notes import emulation, mtp_decision, notes, throttle
from strata_recipes.plan.plan import PLAN_VERSION, ExpertsPlan, OutputPlan, Plan
from strata_recipes.plan.prefill import ChosenOrder, plan_prefill
from strata_recipes.plan.requests import check_requests, unused
from strata_recipes.plan.sizing import Case
from strata_recipes.plan.workload import estimated_tokens, plan_workload
from strata_recipes.schedule.startup import default_order
from strata_recipes.simulate.load import Load
from strata_recipes.simulate.simulate import Simulator, Timed

DEFAULT_ORDER = "expert id, then layer"
Order = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Decided:
    """A plan, with what was simulated of it and what came out."""

    plan: Plan
    load: Load
    timed: Timed


def build_plan(
    config: Config,
    machine: Machine,
    pack: PackIndex,
    prompt_tokens: int | None = None,
    *,
    scale_of: PackIndex | None = None,
    order: Order | None = None,
) -> Plan:
    """The plan of a run; ConfigError or PlanError where there is none.

    `prompt_tokens` None: estimated, and said so. `scale_of`: the index of model.scale_of, used where budgets are declared.
    `order`: the pack's profile, hottest first; None: expert id, then layer.
    """
    return decide(config, machine, pack, prompt_tokens, scale_of=scale_of, order=order).plan


def decide(
    config: Config,
    machine: Machine,
    pack: PackIndex,
    prompt_tokens: int | None = None,
    *,
    scale_of: PackIndex | None = None,
    order: Order | None = None,
) -> Decided:
    """The same, with the simulation that it was chosen by."""
    tokens = estimated_tokens(config.workload) if prompt_tokens is None else prompt_tokens
    check_requests(config, machine, pack, tokens)
    case = Case(config, machine, pack, tokens, scale_of if is_scaled(machine, scale_of) else None)
    search = Search(case, Sizes(pack, default_order(pack) if order is None else order), Simulator(pack, machine))
    found, why = all_options(search)
    counted = prompt_tokens is not None or plan_workload(config.workload).source == "tokens"
    options = sorted(found, key=lambda option: option.rank)
    return Decided(_plan(search, options, why, counted), options[0].load, options[0].timed)


def _plan(search: Search, options: list[Option], why: str | None, counted: bool) -> Plan:
    case = search.case
    config, machine, pack, best = case.config, case.machine, case.pack, options[0]
    place, shape, g = best.placement, best.shape, pack.geometry
    new_tokens = config.decode.max_new_tokens
    compute, compute_why = plan_compute(config.compute, machine)
    start, startup_why = startup(case, best, search.simulator)
    order = ChosenOrder(best.order, order_because(case, options, why))
    prefill, prefill_why = plan_prefill(
        config.prefill,
        g,
        shape.chunk,
        shape.rows,
        shape.context,
        case.prompt_tokens,
        order,
        shape.super_chunk,
        dense_because(case, options),
        best.reading,
        best.file_io.value,
        place.file_bytes,
        best.ram.part(STAGE),
        compute.device,
    )
    mean_blob, has_card = pack.experts_bytes / g.total_experts, machine.gpu is not None
    kv, kv_why = plan_kv(config.kv, g, shape.context, case.prompt_tokens, new_tokens, mean_blob, has_card)
    mtp = mtp_decision(pack, kv.format, kv.max_context)
    experts = _experts_plan(case, best)
    decisions = [*expert_decisions(case, options), startup_why, *prefill_why, *kv_why, *compute_why]
    decisions += [draft_decision(config.decode), *([mtp] if mtp else [])]
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
        experts=experts,
        startup=start,
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
        notes=(
            *notes(case, shape, counted),
            *routing_notes(case, best),
            *draft_notes(config.decode, place.file_blobs),
            *([NOTE] if experts.adapt else []),
            *unused(config, machine, place.file_blobs, best.file_io.value),
        ),
    )


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
        adapt=plan_adapt(case.config.experts.adapt, place, best.ram)[0],
        counted=case.config.experts.profile_save is not None,
    )
