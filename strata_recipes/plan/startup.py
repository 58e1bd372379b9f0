"""How experts get to their places: through the page cache or past it. Knows sizes and rates, no file."""

from __future__ import annotations

from dataclasses import dataclass

from strata_recipes.config.choices import Strategy
from strata_recipes.config.schema import Startup
from strata_recipes.machine.facts import Machine
from strata_recipes.plan.experts import Placement
from strata_recipes.plan.plan import Budget, Decision, StartupPlan
from strata_recipes.units import figure, gb_per_s, gib

# Windows lets a file's cached pages go at the first unbuffered open: 33 GiB in 1.2 to 2.5 s. Linux leaves them alone.
PURGE_RATE = {"windows": 20e9}


@dataclass(frozen=True)
class StartFacts:
    """What the choice hangs on. `kept_bytes`: of the cached ones, those that RAM holds beside the plan's own and the headroom."""

    moved_bytes: int
    cached_bytes: int
    kept_bytes: int
    file_bytes: int
    purge_s: float

    @property
    def kept_share(self) -> float:
        return self.kept_bytes / self.file_bytes


def strategies(asked: Startup) -> tuple[str, ...]:
    """Those to be tried, a mapped start first: of two alike it is the one that takes no buffers."""
    return ("mapped", "unbuffered") if asked.strategy is Strategy.auto else (asked.strategy.value,)


def start_facts(place: Placement, machine: Machine, ram: Budget, file_bytes: int) -> StartFacts:
    cached = int(machine.drive.cached_share * file_bytes)
    kept = max(0, min(cached, ram.limit_bytes - ram.used_bytes))
    purge = cached / PURGE_RATE[machine.os] if machine.os in PURGE_RATE else 0.0
    return StartFacts(place.vram_bytes + place.ram_bytes, cached, kept, file_bytes, purge)


def warms(os: str, file_io: str) -> bool:
    """Whether the kernel can be asked to fill the page cache, and decode reads through it."""
    return os == "linux" and file_io == "buffered"


def plan_startup(
    asked: Startup, place: Placement, machine: Machine, facts: StartFacts, chosen: str, file_io: str, seconds: dict[str, float], stage: int,
    left_bytes: int,
) -> tuple[StartupPlan, Decision]:  # fmt: skip
    """`seconds` by strategy, from the simulator; `stage`: bytes of the start-up buffers; `left_bytes`: of RAM beside the plan's own."""
    because = _because(asked, machine, facts, file_io, seconds)
    plan = StartupPlan(
        strategy=chosen,
        fill_bytes=place.vram_bytes,
        copy_bytes=place.ram_bytes,
        merge_bytes=asked.merge,
        fill_batch=asked.fill_batch,
        copy_batch=asked.copy_batch,
        threads=asked.threads,
        depth=asked.depth,
        stage_bytes=stage,
        warm_bytes=min(place.file_bytes, left_bytes) if asked.warm and warms(machine.os, file_io) else 0,
    )
    return plan, Decision("startup.strategy", chosen, because)


def _because(asked: Startup, machine: Machine, facts: StartFacts, file_io: str, seconds: dict[str, float]) -> str:
    if not facts.moved_bytes:
        return "does not apply: there are no slots to fill and no RAM copy, so the start reads no expert"
    drive = machine.drive
    purge = f" (with {figure(facts.purge_s)} s to purge its cached pages)" if facts.purge_s else ""
    cached = "nothing of the file is cached"
    if facts.cached_bytes:
        cached = (
            f"{gib(facts.cached_bytes)} of the file are cached, {gib(facts.kept_bytes)} stay so beside the plan's RAM and the headroom "
            f"and copy at {gb_per_s(drive.cached)}"
        )
    numbers = (
        f"{gib(facts.moved_bytes)} are {figure(seconds['unbuffered'])} s by direct reads at {gb_per_s(drive.direct)}{purge}, "
        f"{figure(seconds['mapped'])} s through a mapping by page faults at {gb_per_s(drive.faults)}; {cached}"
    )
    if asked.strategy is not Strategy.auto:
        return f"stated; {numbers}"
    if file_io == "direct":
        return f"auto does not apply: the file tier reads unbuffered already, and the start with it; {numbers}"
    return f"auto: {numbers}"
