"""What a person should know of a plan besides its decisions: guesses, emulation, settings in vain. One sentence each."""

from __future__ import annotations

from collections.abc import Iterator

from strata_recipes.config.choices import EmulateLinks, EmulateRam
from strata_recipes.config.schema import Config
from strata_recipes.machine.facts import ESTIMATED
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.budget import F32_BYTES, dense_values, kv_cell_bytes
from strata_recipes.plan.compute import runs_on
from strata_recipes.plan.limits import BUDGET_FACTS, stands_in
from strata_recipes.plan.plan import Decision, Plan, Throttle
from strata_recipes.plan.sizing import Case, Shape
from strata_recipes.units import gb_per_s, gib

_EMULATED_RAM = {EmulateRam.cgroup: "a control group", EmulateRam.ballast: "a locked ballast"}


def emulation(case: Case) -> tuple[str, ...]:
    """How memory and links of another PC are stood in for."""
    machine, held = case.machine, throttle(case)
    links = () if held is None else (_held(held),)
    if stands_in(machine):
        return ("vram: an arena in RAM, held to its budget by the ledger", *links)
    ram = _EMULATED_RAM.get(case.config.emulate.ram)
    if ram is None and any(fact in machine.probed for fact in BUDGET_FACTS):
        return links
    memory = ("vram: ledger",) if machine.gpu is not None else ()
    left = "ram: ledger" if ram is None else f"ram: {ram} leaves {gib(machine.ram_available_bytes)}"
    return (*memory, left, *(links or ("links: not held to the profile's rates",)))


def throttle(case: Case) -> Throttle | None:
    """The links' rates where the config wants them held."""
    if case.config.emulate.links is not EmulateLinks.throttle:
        return None
    machine = case.machine
    return Throttle(machine.drive.direct, machine.drive.faults, None if machine.gpu is None else machine.gpu.pcie)


def _held(held: Throttle) -> str:
    card = "" if held.pcie is None else f", PCIe to {gb_per_s(held.pcie)} for what no slot holds"
    return f"links: drive held to {gb_per_s(held.direct)} direct and {gb_per_s(held.faults)} by faults{card}"


def notes(case: Case, shape: Shape, counted: bool) -> Iterator[str]:
    """In the order in which they matter."""
    machine, pack = case.machine, case.pack
    if not counted:
        yield f"the prompt was not counted: {case.prompt_tokens:,} tokens are an estimate from the config"
    if shape.memories.scale != 1.0 and case.scale_of is not None:
        yield (
            f"{pack.name} is a scale model of {case.scale_of.name}: of {machine.name}'s VRAM and RAM it gets what that model would leave "
            f"for its experts, times {shape.memories.scale:.3g} (expert bytes to expert bytes), plus its own other parts; "
            f"context is the workload's, link rates are not scaled"
        )
    elif case.config.model.scale_of is not None:
        yield f"model.scale_of={case.config.model.scale_of} shrinks nothing here: {machine.name}'s budgets are not declared, but its own"
    estimated = sorted(fact.removesuffix(ESTIMATED) for fact in machine.probed if fact.endswith(ESTIMATED))
    if estimated:
        yield f"not measured on this PC but assumed: {', '.join(f'hardware.{fact}' for fact in estimated)}"
    if machine.gpu is not None and runs_on(case.config.compute, machine) == "cpu":
        values = dense_values(pack)
        yield (
            f"a run here stands in with the CPU's kernels for the card, and their dense weights take {gib(values * F32_BYTES)} "
            f"of this PC's RAM as float32 beside the plan's budgets"
        )
    resident = case.config.kv.resident_tokens
    if isinstance(resident, int) and machine.gpu is None:
        yield f"kv.resident_tokens={resident:,} is not used: this PC has no GPU, all keys and values lie in RAM"
    elif isinstance(resident, int) and resident >= shape.context:
        yield f"kv.resident_tokens={resident:,} is not used: the context has {shape.context:,} tokens, all of them in VRAM"
    yield from pack.notes


def replaced(config: Config, plan: Plan) -> Iterator[str]:
    """Settings that are stated and come out otherwise, with the reason: one sentence each."""
    because = {decision.name: decision.because for decision in plan.decisions}
    for key, asked, planned, name in (
        ("prefill", config.prefill.order.value, plan.prefill.order, "prefill.order"),
        ("startup", config.startup.strategy.value, plan.startup.strategy, "startup.strategy"),
    ):
        if asked not in ("auto", planned):
            yield f"{key}={asked} gives {planned} here: {because[name]}"


def mtp_decision(pack: PackIndex, kv_format: str, context: int) -> Decision | None:
    """What a multi-token-prediction layer would take: this version holds none, other engines do."""
    g = pack.geometry
    if not g.attention_layers:
        return None
    prefix = f"blk.{g.attention_layers[-1]}."
    dense = sum(t.num_bytes for t in pack.dense if t.name.startswith(prefix))
    cells = context * kv_cell_bytes(g, kv_format)
    slots = (dense + cells) * g.total_experts / pack.experts_bytes
    because = (
        f"drafting by it is not built in this version; an engine that holds the model's MTP layer gives one more attention layer "
        f"{cells:,} B of keys and values at this context and about {dense:,} B of dense weights, {gib(cells + dense)} or {slots:,.0f} slots"
    )
    return Decision("model.mtp", 0, because)
