"""What the simulator is told of a candidate, and of a plan that stands. Sums of sizes; knows no rates."""

from __future__ import annotations

from strata_recipes.config.schema import Config
from strata_recipes.plan.budget import BLOBS, STAGE, START, max_stride
from strata_recipes.plan.experts import Placement
from strata_recipes.plan.kv import resident_tokens
from strata_recipes.plan.limits import ram_limit, shrink
from strata_recipes.plan.plan import Budget
from strata_recipes.plan.prefill import FileReading
from strata_recipes.plan.sizing import Case, Shape
from strata_recipes.plan.startup import StartFacts
from strata_recipes.simulate.load import Load, MemoryLoad, PromptLoad, ReplyLoad, StartLoad, TierLoad
from strata_recipes.simulate.routing import DEFAULT_LOCALITY, DEFAULT_SKEW


def start_load(case: Case, strategy: str, place: Placement, facts: StartFacts) -> StartLoad:
    asked = case.config.startup
    return StartLoad(
        strategy=strategy if facts.moved_bytes else "mapped",
        fill_bytes=place.vram_bytes,
        copy_bytes=place.ram_bytes,
        cached_share=facts.kept_share,
        purge_s=facts.purge_s,
        fill_batches=-(-place.vram_slots // asked.fill_batch),
        depth=asked.depth,
        dense_cached_share=case.machine.drive.cached_share,
    )


def load_of(case: Case, shape: Shape, place: Placement, start: StartLoad, file_io: str, way: FileReading, ram: Budget) -> Load:
    config, kept = case.config, shape.super_chunk
    parts, available = ram.used_bytes - ram.part(START), available_bytes(case, ram)
    return Load(
        start=start,
        tiers=TierLoad(
            vram_slots=place.vram_slots,
            ram_blobs=place.ram_blobs,
            file_blobs=place.file_blobs,
            ranked=bool(case.pack.profile_id),
            skew=skew(config),
            heat=case.pack.heat,
            locality=locality(config),
            cache_bytes=max(0, available - parts),
            cached_share=case.machine.drive.cached_share if place.file_blobs else 0.0,
        ),
        prompt=PromptLoad(
            tokens=case.prompt_tokens,
            chunk=shape.chunk,
            super_chunk=None if kept is None else kept.tokens,
            streams_cross=kept is not None and kept.residuals == "host",
            direct=way.direct or file_io == "direct",
            prefetch=config.prefill.prefetch and kept is not None and place.file_blobs > 0,
            buffers=ram.part(STAGE) / max_stride(case.pack),
            dense_streamed=kept is not None and kept.dense == "streamed",
        ),
        reply=ReplyLoad(
            config.decode.max_new_tokens,
            config.kv.format.value,
            file_io == "direct",
            resident=resident_tokens(config.kv, shape.context, case.machine.gpu is not None),
        ),
        memory=MemoryLoad(available, parts - ram.part(BLOBS), ram.part(START)),
    )


def skew(config: Config) -> float:
    return DEFAULT_SKEW if config.model.skew is None else float(config.model.skew)


def locality(config: Config) -> float:
    return DEFAULT_LOCALITY if config.model.locality is None else float(config.model.locality)


def available_bytes(case: Case, ram: Budget) -> int:
    """RAM that the planned PC has available; for a scale model its budget and the headroom beside it, at scale."""
    headroom = case.machine.ram_available_bytes - ram_limit(case.config.hardware, case.machine)[0]
    return ram.limit_bytes + shrink(headroom, case.pack, case.scale_of)
