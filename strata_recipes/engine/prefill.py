"""Reads a prompt: obeys the visits of the plan's order, and tells what that took. Decides nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from strata_recipes.engine.kept_streams import KeptStreams, StreamsInPlace
from strata_recipes.engine.process import process_use, since
from strata_recipes.engine.walk import OnRouted, Walk
from strata_recipes.errors import EXIT_INTERRUPTED, StrataError
from strata_recipes.model.experts import Experts
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.plan.plan import PrefillPlan
from strata_recipes.schedule.prefill import Half, Visit, chunked_visits, expert_layers, layer_major_visits
from strata_recipes.tiers.lookup import ExpertTiers
from strata_recipes.tiers.prompt_path import PromptPath

Logits = NDArray[np.float32]
MakeKept = Callable[[int, int], KeptStreams]


class Cancelled(StrataError):
    """The caller asked to stop; the sequence is given up."""

    exit_code = EXIT_INTERRUPTED


class Keep(Enum):
    """Which logits a prompt leaves besides those of its last token."""

    none = "none"
    last = "last"
    all = "all"


@dataclass(frozen=True)
class PrefillFigures:
    """What a prompt took; the names are those of metrics.json, then the engine's own."""

    order: str
    tokens: int
    seconds: float
    tokens_per_s: float
    expert_bytes_read: int
    expert_bytes_touched: int
    expert_bytes_one_pass: int
    expert_bytes_staged: int
    drive_bytes: int | None
    super_chunks: int
    kept_bytes: int
    mixer_s: float
    experts_s: float
    logits_s: float
    vram_hits: int
    ram_hits: int
    file_hits: int


@dataclass(frozen=True)
class PrefillResult:
    """`last` [vocab] of the prompt's last token; `logits` [1 or n, vocab] as asked for, None for none."""

    last: Logits
    logits: Logits | None
    figures: PrefillFigures


def prefill(
    model: Qwen4Exp,
    experts: Experts,
    tiers: ExpertTiers,
    state: SequenceState,
    ids: NDArray[np.int64],
    plan: PrefillPlan,
    *,
    keep: Keep = Keep.none,
    on_chunk: Callable[[int, int], None] = lambda done, total: None,
    cancelled: Callable[[], bool] = lambda: False,
    ring: bool = False,
    kept: MakeKept = lambda start, stop: StreamsInPlace(),
    on_routed: OnRouted | None = None,
) -> PrefillResult:
    """One prompt into an empty sequence. `on_chunk(tokens done, of all)` follows each span, `cancelled` is asked before each visit.

    `ring`: the plan counts a card's ring, through which all blobs that no slot holds pass. `kept`: makes the place of a super-chunk's
    residual streams.
    """
    before, began, passes, rows = process_use(), time.perf_counter(), 0, []
    model.prompt_starts()
    tiers.take_counters()
    visits = [prefill_visits(plan, model.geometry.num_layers, ids.size) for _ in range(2)]
    with ExitStack() as opened:
        warm = tiers.will_need if plan.warm else None
        path = opened.enter_context(PromptPath(tiers, expert_layers(visits[1]), prefetch=plan.prefetch, warm=warm))
        walk = Walk(model, experts, path, state, ids, kept=kept, on_routed=on_routed)
        opened.callback(walk.close)
        for visit in visits[0]:
            if cancelled():
                raise Cancelled(f"stopped in layer {visit.layer}, at token {visit.start} of {ids.size}")
            if visit.half is Half.mixer and visit.start % plan.super_chunk == 0:
                _pass_starts(plan, visit, ids.size, walk, path)
            walk.do(visit)
            passes += visit.layer == 0 and visit.half is Half.experts
            for start, stop in walk.finished(visit):
                rows.append(walk.logits((start, stop), every=keep is Keep.all, last=stop == ids.size))
                on_chunk(stop, ids.size)
        seconds, read_bytes = time.perf_counter() - began, path.read_bytes()
    drive_bytes = since(process_use().drive_bytes, before.drive_bytes)
    figures = _figures(plan, ids.size, seconds, tiers, walk, passes, drive_bytes, read_bytes, ring)
    logits = None if keep is Keep.none else np.concatenate(rows)
    return PrefillResult(rows[-1][-1], logits, figures)


def _pass_starts(plan: PrefillPlan, visit: Visit, num_tokens: int, walk: Walk, path: PromptPath) -> None:
    """The first mixer visit of a layer over a chunk or super-chunk."""
    if plan.residuals and visit.layer == 0:
        walk.super_chunk(visit.start, min(visit.start + plan.super_chunk, num_tokens))
    path.layer_starts()


def prefill_visits(plan: PrefillPlan, num_layers: int, num_tokens: int) -> Iterator[Visit]:
    """The visits of the planned order."""
    if plan.order == "layer_major":
        return layer_major_visits(num_layers, num_tokens, plan.chunk, plan.super_chunk)
    return chunked_visits(num_layers, num_tokens, plan.chunk)


def _figures(
    plan: PrefillPlan,
    num_tokens: int,
    seconds: float,
    tiers: ExpertTiers,
    walk: Walk,
    passes: int,
    drive_bytes: int | None,
    read_bytes: int | None,
    ring: bool,
) -> PrefillFigures:
    counters = tiers.take_counters()
    return PrefillFigures(
        order=plan.order,
        tokens=num_tokens,
        seconds=seconds,
        tokens_per_s=num_tokens / seconds,
        expert_bytes_read=counters.file_bytes if read_bytes is None else read_bytes,
        expert_bytes_touched=tiers.file_bytes(counters.touched),
        expert_bytes_one_pass=tiers.file_bytes(),
        expert_bytes_staged=counters.staged_bytes if ring else 0,
        drive_bytes=drive_bytes,
        super_chunks=passes,
        kept_bytes=walk.kept_bytes,
        mixer_s=walk.times.mixer_s,
        experts_s=walk.times.experts_s,
        logits_s=walk.times.logits_s,
        vram_hits=counters.vram_hits,
        ram_hits=counters.ram_hits,
        file_hits=counters.file_hits,
    )
