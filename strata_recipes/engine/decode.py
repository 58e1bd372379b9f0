"""Writes a reply: drafted tokens are verified in one pass, and every token is the one that plain decode would choose.

Does not know text, nor how a token is chosen, nor what computes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum

from strata_recipes.engine.adapt import Adapting
from strata_recipes.engine.drafts import Drafter, NoDrafts
from strata_recipes.engine.stepper import Logits, Stepper
from strata_recipes.engine.walk import PhaseTimes
from strata_recipes.tiers.lookup import TierCounters


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
    wait_s: float | None  # beside `seconds`: from the first token until a second one could be computed; None: there was to be no second
    fallback: str | None  # why passes were not computed as planned
    vram_hits: int
    ram_hits: int
    file_hits: int
    drafted: int  # tokens that were guessed and verified
    accepted: int  # of those, tokens of the reply
    steps: int  # passes over the layers
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


@dataclass
class _Reply:
    """What was written so far, and how it came about."""

    limits: Limits
    tokens: list[int] = field(default_factory=list)
    steps: int = 0
    drafted: int = 0
    accepted: int = 0

    @property
    def left(self) -> int:
        """Tokens that may follow at most."""
        return min(self.limits.max_new_tokens, self.limits.room) - len(self.tokens)

    @property
    def stop(self) -> Stop | None:
        if self.tokens and self.tokens[-1] in self.limits.eos:
            return Stop.eos
        if len(self.tokens) >= self.limits.max_new_tokens:
            return Stop.max_new_tokens
        return Stop.context if len(self.tokens) >= self.limits.room else None


def decode(
    make: Callable[[], Stepper],
    logits: Logits,
    sample: Callable[[Logits], int],
    limits: Limits,
    *,
    drafter: Drafter | None = None,
    adapt: Adapting | None = None,
    on_token: Callable[[int], None] = lambda token: None,
) -> DecodeResult:
    """Continues a sequence from `logits` [vocab]; `on_token` is told each token once, as it is chosen, `adapt` how far it came.

    The first token comes of these logits: what reads on is made after it, with all that has to be waited for.
    `sample` is asked for the same rows in the same order whatever is drafted, so that a seeded draw gives the same tokens too.
    """
    reply, guesses = _Reply(limits), NoDrafts() if drafter is None else drafter
    began = time.perf_counter()

    def choose(row: Logits) -> int:
        token = sample(row)
        reply.tokens.append(token)
        guesses.add(token)
        on_token(token)
        return token

    if reply.stop is None:
        choose(logits)
    stepper, wait_s = _ready(make) if reply.stop is None else (None, None)
    while (stop := reply.stop) is None:
        drafted = _drafted(guesses, reply)
        assert stepper is not None, "it was made as the reply was to go on"
        rows = stepper.step([reply.tokens[-1], *drafted])
        right = _verified(rows, drafted, choose)
        if drafted:
            stepper.keep_only(1 + right)
        for _ in range(1 + right if adapt else 0):
            adapt.token_done()
        reply.steps, reply.drafted, reply.accepted = reply.steps + 1, reply.drafted + len(drafted), reply.accepted + right
    moved = None if adapt is None else adapt.take_figures()
    seconds = time.perf_counter() - began - (wait_s or 0.0)
    return DecodeResult(tuple(reply.tokens), stop, _figures(reply, seconds, wait_s, stepper, moved))


def _ready(make: Callable[[], Stepper]) -> tuple[Stepper, float]:
    """With nothing counted yet, and the seconds that it took."""
    began = time.perf_counter()
    stepper = make()
    stepper.take_counters()
    return stepper, time.perf_counter() - began


def _drafted(guesses: Drafter, reply: _Reply) -> list[int]:
    """What the step verifies beside the last token, which gives one token itself; nothing from an end of text on, which ends the reply."""
    drafted = list(guesses.draft(reply.left - 1)) if reply.left > 1 else []
    ends = [at for at, token in enumerate(drafted) if token in reply.limits.eos]
    return drafted[: ends[0]] if ends else drafted


def _verified(rows: Logits, drafted: Sequence[int], choose: Callable[[Logits], int]) -> int:
    """Chooses a token a row for as long as the row after it has read that very token. -> how many drafted tokens were right."""
    for at, guess in enumerate(drafted):
        if choose(rows[at]) != guess:
            return at
    choose(rows[len(drafted)])
    return len(drafted)


def _figures(
    reply: _Reply, seconds: float, wait_s: float | None, stepper: Stepper | None, moved: tuple[int, float] | None
) -> DecodeFigures:
    counters, times = (TierCounters(), PhaseTimes()) if stepper is None else (stepper.take_counters(), stepper.times())
    num_tokens = len(reply.tokens)
    return DecodeFigures(
        tokens=num_tokens,
        seconds=seconds,
        tokens_per_s=(num_tokens - 1) / seconds if num_tokens > 1 else None,  # the first token came with the prompt
        wait_s=wait_s,
        fallback=None if stepper is None else stepper.fallback,
        vram_hits=counters.vram_hits,
        ram_hits=counters.ram_hits,
        file_hits=counters.file_hits,
        drafted=reply.drafted,
        accepted=reply.accepted,
        steps=reply.steps,
        swaps=None if moved is None else moved[0],
        swap_s=None if moved is None else moved[1],
        expert_bytes_read=counters.file_bytes,
        mixer_s=times.mixer_s,
        experts_s=times.experts_s,
        logits_s=times.logits_s,
    )
