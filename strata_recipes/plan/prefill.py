"""How a prompt is cut. Knows no budget: it names candidates, and the caller keeps the first that fits."""

from __future__ import annotations

from strata_recipes.config.schema import Prefill
from strata_recipes.pack.index import Geometry
from strata_recipes.plan.budget import buffer_parts, total
from strata_recipes.plan.plan import Decision, PrefillPlan
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


def plan_prefill(
    asked: Prefill, g: Geometry, chunk: int, rows: int, context: int, prompt_tokens: int
) -> tuple[PrefillPlan, list[Decision]]:
    """The order and the grid, with what its buffers take."""
    parts = buffer_parts(g, rows, context, 1)
    biggest = max(parts, key=lambda part: part.num_bytes)
    if isinstance(asked.chunk, int):
        how = "stated"
    elif chunk == LARGEST_CHUNK:
        how = f"auto: the largest grid that auto takes, {LARGEST_CHUNK}, so that a prompt gives the same bits on every PC"
    else:
        how = f"auto: the buffers of {2 * chunk} tokens do not fit"
    because = f"{how}; buffers of {gib(total(parts))} for {rows:,} tokens, most of it {biggest.name} ({gib(biggest.num_bytes)})"
    order = Decision("prefill.order", "chunked", "the order that this version has: each chunk walks all layers")
    return PrefillPlan("chunked", chunk, prompt_tokens), [order, Decision("prefill.chunk", chunk, because)]
