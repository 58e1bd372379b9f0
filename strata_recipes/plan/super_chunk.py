"""How many tokens a layer-major pass takes, and where it keeps their residual streams. Names candidates; knows no speed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from strata_recipes.config.choices import Dense, Residuals
from strata_recipes.config.schema import Prefill
from strata_recipes.errors import PlanError


@dataclass(frozen=True)
class SuperChunk:
    """`tokens` of one pass, a multiple of the chunk; `residuals` is vram or host, `dense` resident or streamed."""

    tokens: int
    residuals: str
    dense: str = "resident"


Fits = Callable[[SuperChunk], bool]


def super_chunks(asked: Prefill, chunk: int, prompt_tokens: int, gpu: bool, fits: Fits) -> list[SuperChunk]:
    """Every super-chunk worth timing: the whole prompt, or the largest that fits, in each place that holds it; with dense weights
    streamed only where more tokens fit so, under auto.

    Empty where not even two chunks fit; PlanError where one that was stated does not, or is no multiple of the chunk.
    """
    whole = -(-prompt_tokens // chunk)
    if asked.super_chunk == "auto":
        return _largest_ones(asked, chunk, whole, gpu, fits)
    tokens = whole * chunk if asked.super_chunk == "whole" else _multiple(int(asked.super_chunk), chunk, whole)
    fitting: list[SuperChunk] = []
    for dense in _dense(asked, gpu):
        fitting = fitting or [one for place in _places(asked, gpu) if fits(one := SuperChunk(tokens, place, dense))]
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


def _dense(asked: Prefill, gpu: bool) -> tuple[str, ...]:
    """Resident first: it costs no copies."""
    if not gpu:
        return (Dense.resident.value,)
    return ("resident", "streamed") if asked.dense is Dense.auto else (asked.dense.value,)


def _largest_ones(asked: Prefill, chunk: int, whole: int, gpu: bool, fits: Fits) -> list[SuperChunk]:
    kept: list[SuperChunk] = []
    for dense in _dense(asked, gpu):
        found = [_largest(SuperChunk(chunk, place, dense), whole, fits) for place in _places(asked, gpu)]
        most = max([one.tokens for one in found])
        if most > max([chunk, *(one.tokens for one in kept)]):
            kept += [one for one in found if one.tokens == most]
    return kept


def _largest(one: SuperChunk, whole: int, fits: Fits) -> SuperChunk:
    """Whole chunks like this one, by bisection: what a super-chunk keeps grows with it."""

    def of(chunks: int) -> SuperChunk:
        return dataclasses.replace(one, tokens=chunks * one.tokens)

    if fits(of(whole)):
        return of(whole)
    good, bad = 1, whole
    while bad - good > 1:
        middle = (good + bad) // 2
        if fits(of(middle)):
            good = middle
        else:
            bad = middle
    return of(good)


def _multiple(tokens: int, chunk: int, whole: int) -> int:
    if tokens % chunk:
        below, above = tokens // chunk * chunk, -(-tokens // chunk) * chunk
        near = f"{below:,} or {above:,}" if below else f"{above:,}"
        raise PlanError(f"prefill.super_chunk={tokens:,} is no multiple of prefill.chunk={chunk:,}: use {near}")
    return min(tokens, whole * chunk)
