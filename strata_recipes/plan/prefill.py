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


def not_layer_major(prompt_tokens: int, chunk: int, all_in_vram: bool) -> str | None:
    """Why layer-major order has nothing to gain; None where it may."""
    if prompt_tokens <= chunk:
        return f"a prompt of {prompt_tokens:,} tokens is one chunk of {chunk:,}, which reads each expert once in either order"
    return "every expert has a VRAM slot, so none is read again" if all_in_vram else None


def plan_prefill(
    asked: Prefill, g: Geometry, chunk: int, rows: int, context: int, prompt_tokens: int, order: ChosenOrder, kept: SuperChunk | None
) -> tuple[PrefillPlan, list[Decision]]:
    """The order and the grid, with what their buffers take."""
    decisions = [Decision("prefill.order", order.name, order.because), _chunk_decision(asked, g, chunk, rows, context)]
    if kept is None:
        return PrefillPlan(order.name, chunk, prompt_tokens, chunk), decisions
    plan = PrefillPlan(order.name, chunk, prompt_tokens, kept.tokens, kept.residuals)
    return plan, [*decisions, *_kept_decisions(asked, g, prompt_tokens, kept)]


def _chunk_decision(asked: Prefill, g: Geometry, chunk: int, rows: int, context: int) -> Decision:
    parts = buffer_parts(g, rows, context, 1)
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
