"""Writes a reply, one token at a time through the same halves as a prompt. Does not know text, nor how a token is chosen."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from strata_recipes.engine.adapt import Adapting
from strata_recipes.engine.walk import Walk
from strata_recipes.model.experts import Blobs, Experts
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.schedule.prefill import token_visits
from strata_recipes.tiers.lookup import ExpertTiers

Logits = NDArray[np.float32]


class Stop(Enum):
    """Why a reply ended."""

    eos = "eos"
    max_new_tokens = "max_new_tokens"
    context = "context"


@dataclass(frozen=True)
class Limits:
    """`room` tokens are left in the context; `eos` is empty where the reply goes on over it."""

    max_new_tokens: int
    room: int
    eos: Collection[int]


@dataclass(frozen=True)
class DecodeFigures:
    """What a reply took; the names are those of metrics.json, then the engine's own."""

    tokens: int
    seconds: float
    tokens_per_s: float | None  # of the tokens after the first; None where there are none
    vram_hits: int
    ram_hits: int
    file_hits: int
    swaps: int | None  # experts that took another's slot; None where they stay in place
    swap_s: float | None  # of `seconds`
    expert_bytes_read: int
    mixer_s: float
    experts_s: float
    logits_s: float


@dataclass(frozen=True)
class DecodeResult:
    """The reply's tokens, an end-of-text token included."""

    tokens: tuple[int, ...]
    stop: Stop
    figures: DecodeFigures


def decode(
    model: Qwen4Exp,
    experts: Experts,
    tiers: ExpertTiers,
    state: SequenceState,
    logits: Logits,
    sample: Callable[[Logits], int],
    limits: Limits,
    *,
    on_token: Callable[[int], None] = lambda token: None,
    adapt: Adapting | None = None,
) -> DecodeResult:
    """Continues a sequence from `logits` [vocab]; `on_token` is told each token as it is chosen, `adapt` what its experts are."""
    tokens: list[int] = []
    began = time.perf_counter()
    tiers.take_counters()
    blobs = tiers if adapt is None else adapt
    times = np.zeros(3)
    while (stop := _stop(tokens, limits)) is None:
        if tokens:
            logits, took = _step(model, experts, blobs, state, tokens[-1])
            times += took
            if adapt is not None:
                adapt.token_done()
        tokens.append(sample(logits))
        on_token(tokens[-1])
    moved = None if adapt is None else adapt.take_figures()
    return DecodeResult(tuple(tokens), stop, _figures(len(tokens), time.perf_counter() - began, tiers, times, moved))


def _stop(tokens: list[int], limits: Limits) -> Stop | None:
    if tokens and tokens[-1] in limits.eos:
        return Stop.eos
    if len(tokens) >= limits.max_new_tokens:
        return Stop.max_new_tokens
    return Stop.context if len(tokens) >= limits.room else None


def _step(model: Qwen4Exp, experts: Experts, blobs: Blobs, state: SequenceState, token: int) -> tuple[Logits, tuple[float, float, float]]:
    """Logits [vocab] after one more token, and the seconds of its phases."""
    at = state.num_tokens
    walk = Walk(model, experts, blobs, state, np.array([token], np.int64), at)
    for visit in token_visits(model.geometry.num_layers, at):
        walk.do(visit)
    logits = walk.logits((at, at + 1), every=False, last=True)[0]
    return logits, (walk.times.mixer_s, walk.times.experts_s, walk.times.logits_s)


def _figures(
    num_tokens: int, seconds: float, tiers: ExpertTiers, times: NDArray[np.float64], moved: tuple[int, float] | None
) -> DecodeFigures:
    counters = tiers.take_counters()
    return DecodeFigures(
        tokens=num_tokens,
        seconds=seconds,
        tokens_per_s=(num_tokens - 1) / seconds if num_tokens > 1 else None,  # the first token came with the prompt
        vram_hits=counters.vram_hits,
        ram_hits=counters.ram_hits,
        file_hits=counters.file_hits,
        swaps=None if moved is None else moved[0],
        swap_s=None if moved is None else moved[1],
        expert_bytes_read=counters.file_bytes,
        mixer_s=float(times[0]),
        experts_s=float(times[1]),
        logits_s=float(times[2]),
    )
