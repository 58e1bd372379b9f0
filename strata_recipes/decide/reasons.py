"""Why a plan is what it is: each decision with its numbers, the runner-up's too. Decides nothing."""

from __future__ import annotations

import dataclasses

from strata_recipes.config.choices import Dense, Order
from strata_recipes.decide.loads import locality, skew
from strata_recipes.decide.options import Option
from strata_recipes.plan.adapt import plan_adapt
from strata_recipes.plan.budget import START, total
from strata_recipes.plan.dense import layer_slab_bytes
from strata_recipes.plan.plan import Decision, StartupPlan
from strata_recipes.plan.sizing import Case
from strata_recipes.plan.startup import plan_startup
from strata_recipes.simulate.simulate import Simulator
from strata_recipes.units import figure, gib


def startup(case: Case, best: Option, simulator: Simulator) -> tuple[StartupPlan, Decision]:
    load, stage = best.load.start, best.ram.part(START)
    seconds = {name: simulator.start(dataclasses.replace(load, strategy=name)).moved_s for name in ("mapped", "unbuffered")}
    left = best.ram.limit_bytes - best.ram.used_bytes
    return plan_startup(
        case.config.startup, best.placement, case.machine, best.start, load.strategy, best.file_io.value, seconds, stage, left
    )


def expert_decisions(case: Case, options: list[Option]) -> list[Decision]:
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
        *([adapt] if (adapt := plan_adapt(asked.adapt, place, best.ram)[1]) else []),
    ]


def order_because(case: Case, options: list[Option], why: str | None) -> str:
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


def dense_because(case: Case, options: list[Option]) -> str:
    """Both ways' predicted times and super-chunks, or why there is only one."""
    asked, kept = case.config.prefill.dense, options[0].shape.super_chunk
    if case.machine.gpu is None:
        return "no GPU: dense weights lie in RAM, where they are computed with"
    if kept is None:
        return "chunked order: each chunk needs all dense weights, so they stay in VRAM"
    best = _with_dense(case, options[0])
    if asked is not Dense.auto:
        return f"stated: {best}"
    others = [option for option in options if option.shape.super_chunk and option.shape.super_chunk.dense != kept.dense]
    if others:
        return f"auto: {best}, then {_with_dense(case, others[0])}"
    return (
        f"auto: {best}; {'no super-chunk is larger without them' if kept.dense == 'resident' else 'no super-chunk fits beside all of them'}"
    )


def _with_dense(case: Case, option: Option) -> str:
    kept, tokens = option.shape.super_chunk, case.prompt_tokens
    assert kept is not None
    passes = "one pass" if kept.tokens >= tokens else f"{-(-tokens // kept.tokens):,} passes"
    up = f", each with {gib(layer_slab_bytes(case.pack))} of them over PCIe" if kept.dense == "streamed" else ""
    return f"{kept.dense} {figure(option.timed.prediction.prefill_s)} s for the prompt in {passes} of {kept.tokens:,} tokens{up}"


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


def routing_notes(case: Case, best: Option) -> list[str]:
    share = best.timed.vram_hit_share
    source = "stated" if case.config.model.skew is not None else "the seed model's, not measured on this one"
    routed = "the profile's counts of choices" if case.pack.heat else f"a router skew of {skew(case.config):g} ({source})"
    heat = f"predicted with {routed}{_repeats(case)}"
    if not case.pack.profile_id:
        return [f"{heat}; without a profile slots are filled by expert id, so {share:.0%} of a token's choices find one"]
    return [f"{heat}; slots hold the hottest, so {share:.0%} of a token's choices find one"]


def _repeats(case: Case) -> str:
    """A locality counts where a reply reads the file through the page cache."""
    if case.config.model.locality is None:
        return f", and {locality(case.config):.0%} of a reply's choices repeating a recent one (a peer's measurement)"
    return f", and {locality(case.config):.0%} of a reply's choices repeating a recent one (stated)"
