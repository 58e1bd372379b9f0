"""Runs and benches made up by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strata_recipes.bench.runs import Mark, Run
from strata_recipes.bench.summary import Asked, Summary, summarised

IDENTITY = {"tokens_md5": "aa", "first_logits_md5": "bb", "slots_checksum": None, "ram_checksum": None, "pack_id": "cc"}


def run(arm: str, pair: int, ready_s: float | None = None, **more: Any) -> Run:
    facts: dict[str, Any] = dict(mark=Mark.counted, why="", exit_code=0, seconds=9.0, identity=IDENTITY, lowest_available_bytes=5 << 30)
    return Run(arm=arm, pair=pair, place=0, **(facts | {"figures": {"ready_s": ready_s}} | more))


def asked(*arms: str, metrics: Sequence[str] = ("ready_s",), same_tokens: bool = True, **more: Any) -> Asked:
    overrides: Mapping[str, Sequence[str]] = {arm: [f"startup={arm}"] for arm in arms}
    settings: dict[str, Any] = dict(pairs=3, cache="cold", settle_s=0.0, stop_below=1 << 30, stop_after_s=2.0)
    return Asked("made up", overrides, metrics, same_tokens=same_tokens, **(settings | more))


# The start-up report's chat series, as its table has it: four base starts, six of the other arm, two stopped by the watchdog.
BASE = {1: 41.0, 2: None, 3: 44.1, 4: 42.3, 5: 42.6, 6: None}
OTHER = {1: 9.1, 2: 10.9, 3: 9.6, 4: 8.8, 5: 10.2, 6: 9.0}


def series() -> Summary:
    base = [run("mapped", pair, value) if value else stopped("mapped", pair) for pair, value in BASE.items()]
    other = [run("unbuffered", pair, value) for pair, value in OTHER.items()]
    return summarised(asked("mapped", "unbuffered", pairs=6), [*base, *other])


def stopped(arm: str, pair: int) -> Run:
    why = "available RAM stayed under 1.00 GiB for 2.1 s"
    return run(arm, pair, mark=Mark.stopped, why=why, exit_code=130, identity={}, figures={}, lowest_available_bytes=1 << 28)
