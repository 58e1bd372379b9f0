"""How many tokens a layer-major pass takes, and where it keeps their residual streams. Names candidates; knows no speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from strata_recipes.config.choices import Residuals
from strata_recipes.config.schema import Prefill
from strata_recipes.errors import PlanError


@dataclass(frozen=True)
class SuperChunk:
    """`tokens` of one pass, a multiple of the chunk; `residuals` is vram or host."""

    tokens: int
    residuals: str


Fits = Callable[[SuperChunk], bool]


def super_chunks(asked: Prefill, chunk: int, prompt_tokens: int, gpu: bool, fits: Fits) -> list[SuperChunk]:
    """Every super-chunk worth timing: the whole prompt, or the largest that fits, in each place that holds it.

    Empty where not even two chunks fit; PlanError where one that was stated does not, or is no multiple of the chunk.
    """
    whole = -(-prompt_tokens // chunk)
    if asked.super_chunk == "auto":
        found = [SuperChunk(_largest(place, chunk, whole, fits) * chunk, place) for place in _places(asked, gpu)]
        most = max(one.tokens for one in found)
        return [one for one in found if one.tokens == most > chunk]
    tokens = whole * chunk if asked.super_chunk == "whole" else _multiple(int(asked.super_chunk), chunk, whole)
    fitting = [one for place in _places(asked, gpu) if fits(one := SuperChunk(tokens, place))]
    if not fitting:
        raise PlanError(
            f"a super-chunk of {tokens:,} tokens does not fit beside the plan's other parts and prefill.margin={asked.margin:,}: "
            f"use prefill.super_chunk=auto or lower prefill.margin"
        )
    return fitting


def _places(asked: Prefill, gpu: bool) -> tuple[str, ...]:
    if not gpu:
        return (Residuals.host.value,)
    return ("vram", "host") if asked.residuals is Residuals.auto else (asked.residuals.value,)


def _largest(place: str, chunk: int, whole: int, fits: Fits) -> int:
    """Chunks, by bisection: what a super-chunk keeps grows with it."""
    if fits(SuperChunk(whole * chunk, place)):
        return whole
    good, bad = 1, whole
    while bad - good > 1:
        middle = (good + bad) // 2
        if fits(SuperChunk(middle * chunk, place)):
            good = middle
        else:
            bad = middle
    return good


def _multiple(tokens: int, chunk: int, whole: int) -> int:
    if tokens % chunk:
        below, above = tokens // chunk * chunk, -(-tokens // chunk) * chunk
        near = f"{below:,} or {above:,}" if below else f"{above:,}"
        raise PlanError(f"prefill.super_chunk={tokens:,} is no multiple of prefill.chunk={chunk:,}: use {near}")
    return min(tokens, whole * chunk)
