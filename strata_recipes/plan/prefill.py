"""How a prompt is cut. Knows no budget: it names candidates, and the caller keeps the first that fits."""

from __future__ import annotations

from dataclasses import dataclass

from strata_recipes.config.schema import Prefill
from strata_recipes.pack.index import Geometry
from strata_recipes.plan.budget import buffer_parts, kept_parts, total
from strata_recipes.plan.plan import Decision, PrefillPlan
from strata_recipes.plan.super_chunk import SuperChunk
from strata_recipes.units import gib

# A larger grid would read experts fewer times, but the grid is part of a result's identity: auto may not grow it with the card,
# or the same prompt would give other bits on another PC. 512 is the grid of the published runs and wide enough for full matmul tiles.
LARGEST_CHUNK, SMALLEST_CHUNK = 512, 16


def chunk_candidates(asked: Prefill) -> tuple[int, ...]:
    """Stated, or falling powers of two: a smaller one only where memory is short of the larger."""
    if isinstance(asked.chunk, int):
        return (asked.chunk,)
    found = [LARGEST_CHUNK]
    while found[-1] > SMALLEST_CHUNK:
        found.append(found[-1] // 2)
    return tuple(found)


@dataclass(frozen=True)
class ChosenOrder:
    """The order that was chosen and why."""

    name: str  # chunked or layer_major
    because: str


@dataclass(frozen=True)
class FileReading:
    """How a prompt reads the experts of the file, and why."""

    direct: bool
    because: str


def direct_choices(asked: Prefill, file_io: str, file_blobs: int, os: str) -> list[FileReading]:
    """Every way worth timing; one where there is no choice."""
    if not file_blobs:
        return [FileReading(False, "no expert stays in the file")]
    if file_io == "direct":
        return [FileReading(True, "as decode: experts.file_io=direct keeps nothing in the page cache")]
    if asked.direct != "auto":
        return [FileReading(bool(asked.direct), "stated")]
    if os == "windows":
        return [FileReading(False, "auto: what Windows' cache holds is not known, so all is read through it")]
    if asked.warm:
        return [FileReading(False, "auto: prefill.warm has the page cache filled ahead")]
    return [FileReading(direct, "auto: the faster of through and past the page cache, decode after it counted") for direct in (True, False)]


def not_layer_major(prompt_tokens: int, chunk: int, all_in_vram: bool) -> str | None:
    """Why layer-major order has nothing to gain; None where it may."""
    if prompt_tokens <= chunk:
        return f"a prompt of {prompt_tokens:,} tokens is one chunk of {chunk:,}, which reads each expert once in either order"
    return "every expert has a VRAM slot, so none is read again" if all_in_vram else None


def plan_prefill(
    asked: Prefill,
    g: Geometry,
    chunk: int,
    rows: int,
    context: int,
    prompt_tokens: int,
    order: ChosenOrder,
    kept: SuperChunk | None,
    dense_because: str,
    reading: FileReading,
    file_io: str,
    file_bytes: int,
    stage_bytes: int,
    device: str,
) -> tuple[PrefillPlan, list[Decision]]:
    """The order and the grid, with what their buffers take, and how the file is read."""
    decisions = [Decision("prefill.order", order.name, order.because), _chunk_decision(asked, g, chunk, rows, context, device)]
    plan = PrefillPlan(
        order.name,
        chunk,
        prompt_tokens,
        super_chunk=chunk if kept is None else kept.tokens,
        residuals=None if kept is None else kept.residuals,
        dense="resident" if kept is None else kept.dense,
        prefetch=asked.prefetch and kept is not None and file_bytes > 0,
        direct=reading.direct,
        direct_min=float(asked.direct_min) if reading.direct and file_io == "buffered" else None,
        warm=asked.warm and not reading.direct and file_bytes > 0,
    )
    if kept is not None:
        decisions += _kept_decisions(asked, g, prompt_tokens, kept)
    decisions.append(Decision("prefill.dense", plan.dense, dense_because))
    if file_bytes:
        decisions += _file_decisions(plan, reading, file_bytes, stage_bytes)
    return plan, decisions


def _file_decisions(plan: PrefillPlan, reading: FileReading, file_bytes: int, stage_bytes: int) -> list[Decision]:
    cached = "" if plan.direct_min is None else f"; a blob of which the page cache holds {plan.direct_min:.0%} or more is copied out of it"
    ahead = (
        f"a layer's file experts are asked for in file order, the order of their use, when its mixer starts; {gib(stage_bytes)} of buffers "
        f"for {gib(file_bytes)} in the file"
        if plan.prefetch
        else "not in chunked order, or stated: experts are asked for when their layer's routing is known"
    )
    return [Decision("prefill.direct", plan.direct, f"{reading.because}{cached}"), Decision("prefill.prefetch", plan.prefetch, ahead)]


def _chunk_decision(asked: Prefill, g: Geometry, chunk: int, rows: int, context: int, device: str) -> Decision:
    parts = buffer_parts(g, rows, context, 1, device)
    biggest = max(parts, key=lambda part: part.num_bytes)
    if isinstance(asked.chunk, int):
        how = "stated"
    elif chunk == LARGEST_CHUNK:
        how = f"auto: the largest grid that auto takes, {LARGEST_CHUNK}, so that a prompt gives the same bits on every PC"
    else:
        how = f"auto: the buffers of {2 * chunk} tokens do not fit"
    because = f"{how}; buffers of {gib(total(parts))} for {rows:,} tokens, most of it {biggest.name} ({gib(biggest.num_bytes)})"
    return Decision("prefill.chunk", chunk, because)


def _kept_decisions(asked: Prefill, g: Geometry, prompt_tokens: int, kept: SuperChunk) -> list[Decision]:
    passes = -(-prompt_tokens // kept.tokens)
    streams, rows = kept_parts(g, min(kept.tokens, prompt_tokens))
    how = "auto" if asked.super_chunk == "auto" else "stated"
    what = "the whole prompt" if passes == 1 else f"the largest that fits, {passes} passes" if how == "auto" else f"{passes} passes"
    keeps = f"it keeps {gib(streams.num_bytes)} of residual streams and {gib(rows.num_bytes)} of expert rows"
    where = "auto: the faster of the places that hold them" if asked.residuals.value == "auto" else "stated"
    return [
        Decision("prefill.super_chunk", kept.tokens, f"{how}: {what}; {keeps}"),
        Decision("prefill.residuals", kept.residuals, f"{where}; {gib(streams.num_bytes)}"),
    ]
