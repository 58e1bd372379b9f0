"""Many requests in one process over mixed prompts and budgets: the same tokens for a prompt each time, and nothing that grows."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from strata_recipes.config.choices import Strategy
from strata_recipes.config.schema import Startup
from strata_recipes.engine.prefill import Cancelled
from strata_recipes.engine.session import Session
from strata_recipes.pack.reader import Pack
from tests.engine.plans import WITH_CARD, plan_for

NEW = 4
LONGEST = 40
A_SESSION = 5  # requests before the next budget's turn
BUDGETS: list[dict[str, Any]] = [
    {"mode": "resident", "slots": 7},
    {"mode": "mapped", "slots": 0, "file_io": "direct"},
    {"mode": "budget", "slots": 3, "ram_budget": 90_000, "file_io": "buffered", "order": "layer_major", "super_chunk": "whole"},
    {"mode": "full_arena", "slots": 24, "startup": Startup(Strategy.unbuffered, copy_batch=3, fill_batch=2)},
    {"mode": "budget", "slots": 1, "ram_budget": 200_000, "file_io": "direct", "order": "layer_major", "super_chunk": 16},
    {"mode": "auto", "machine": WITH_CARD},
    {"mode": "mapped", "slots": 12, "file_io": "buffered", "startup": Startup(Strategy.unbuffered)},
]


@dataclass(frozen=True)
class Held:
    """What the process holds at one moment, between sessions."""

    rss_bytes: int
    handles: int
    threads: int


@dataclass
class Figures:
    """What a soak came to; `warm` is taken after the first round of all budgets and prompts."""

    requests: int = 0
    cancelled: int = 0
    sessions: int = 0
    seconds: float = 0.0
    warm: Held | None = None
    end: Held | None = None
    replies: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)


def soak(packs: dict[str, Pack], requests: int, seconds: float, warm_requests: int) -> Figures:
    """Requests until there are enough or the time is up; AssertionError where a prompt's reply differs from its first."""
    found, began, rng = Figures(), time.monotonic(), np.random.default_rng(6)
    for name, budget in _sessions(packs):
        if found.requests >= requests or time.monotonic() - began > seconds:
            break
        plan = plan_for(packs[name], chunk=16, prompt=LONGEST, new=NEW, **budget)
        with Session(plan, packs[name], poison=True) as session:
            for number in rng.integers(0, 24, A_SESSION):
                _request(session, found, (name, int(number)), give_up=rng.random() < 0.1)
        found.sessions += 1
        if found.warm is None and found.requests >= warm_requests and found.sessions % (len(BUDGETS) * len(packs)) == 0:
            found.warm = held()
    found.end, found.seconds = held(), time.monotonic() - began
    return found


def prompt(number: int) -> NDArray[np.int64]:
    """One of 24 prompts of 1 to 40 tokens; neighbours begin alike."""
    rng = np.random.default_rng(number // 2)
    return rng.integers(3, 128, LONGEST)[: 1 + number * 39 // 23]


def held() -> Held:
    return Held(psutil.Process().memory_info().rss, len(os.listdir("/proc/self/fd")), threading.active_count())


def _sessions(packs: dict[str, Pack]) -> Iterator[tuple[str, dict[str, Any]]]:
    turns: Sequence[tuple[str, dict[str, Any]]] = [(name, budget) for budget in BUDGETS for name in packs]
    return cycle(turns)


def _request(session: Session, found: Figures, key: tuple[str, int], give_up: bool) -> None:
    found.requests += 1
    if give_up:
        asked = iter(range(1000))
        try:
            session.prompt(prompt(key[1]), cancelled=lambda: next(asked) == 2)
        except Cancelled:
            found.cancelled += 1
            return
    else:
        session.prompt(prompt(key[1]))
    tokens = session.generate().tokens
    assert found.replies.setdefault(key, tokens) == tokens, f"{key} under {session.plan.experts}: {tokens}, first {found.replies[key]}"
