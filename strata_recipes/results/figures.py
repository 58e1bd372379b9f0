"""A run's key figures in words, for the terminal's table and the folder's README. Knows no layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strata_recipes.plan.plan import Budget, Plan, Prediction
from strata_recipes.results.metrics import EmulatedMetrics, Metrics, PrefillMetrics
from strata_recipes.units import gib


@dataclass(frozen=True)
class Figure:
    """One line: which part of the run, what, and how much."""

    part: str
    name: str
    value: str


def figures(plan: Plan, metrics: Metrics) -> list[Figure]:
    """Plan, start-up, prompt, decode; a figure that was not taken is left out."""
    return [*_planned(plan), *_startup(metrics), *_prompt(plan, metrics), *_decode(plan, metrics)]


def emulation(emulated: EmulatedMetrics) -> str | None:
    """One sentence on what was not this machine's own; None where all was."""
    facts, by = emulated.facts, emulated.by
    if not facts and not by:
        return None
    how = f" Stood in for by: {'; '.join(by)}." if by else ""
    return f"Not this machine's own: {'; '.join(facts) or 'no fact'}.{how} Times are this machine's, not the named PC's."


def _planned(plan: Plan) -> list[Figure]:
    card = "GPU" if plan.compute.runs_on == "cuda" else "GPU, the CPU stands in for it"
    device = card if plan.compute.device == "cuda" else f"CPU, {plan.compute.threads} threads"
    return [
        Figure("plan", "model", f"{plan.model.name}, compute {plan.compute.arithmetic} ({device}), kv {plan.kv.format}"),
        Figure("plan", "hardware", f"{plan.hardware} ({plan.os})"),
        Figure(
            "plan",
            "experts",
            f"{plan.experts.mode}: {plan.vram_slots:,} in VRAM slots, {plan.ram_blobs:,} in RAM, {plan.file_blobs:,} in the file",
        ),
        Figure("plan", "VRAM", _budget(plan.vram)),
        Figure("plan", "RAM", _budget(plan.ram)),
        Figure("plan", "predicted", _forecast(plan.predicted)),
    ]


def _forecast(of: Prediction) -> str:
    pace = f"{of.prefill_tokens_per_s:,.1f} tokens/s read, {of.decode_tokens_per_s:,.1f} tokens/s written"
    return f"ready after {_seconds(of.ready_s)}, {pace}"


def _budget(budget: Budget) -> str:
    return f"{gib(budget.used_bytes)} of {gib(budget.limit_bytes)}"


def _startup(metrics: Metrics) -> list[Figure]:
    start = metrics.startup
    lines = [
        ("strategy", start.strategy),
        ("VRAM fill", _copied(start.fill_bytes, start.fill_s)),
        ("RAM copy", _copied(start.copy_bytes, start.copy_s)),
    ]
    lines += [("read from the drive", None if start.drive_bytes is None else gib(start.drive_bytes)), ("fell back to", start.fallback)]
    ready = None if metrics.ready_s is None else _seconds(metrics.ready_s)
    return _told("start-up", [*lines, ("ready after", ready)])


def _prompt(plan: Plan, metrics: Metrics) -> list[Figure]:
    read = metrics.prefill
    pace = _pace(read.tokens, read.seconds, read.tokens_per_s)
    order = None if read.order is None else f"{read.order}, chunks of {plan.prefill.chunk} tokens{_passes(plan, read.super_chunks)}"
    first = None if metrics.first_token_s is None else _seconds(metrics.first_token_s)
    lines = [("order", order), ("read", pace), ("experts from the file", _from_file(read)), ("first token after", first)]
    return _told("prompt", lines)


def _passes(plan: Plan, passes: int | None) -> str:
    if passes is None:
        return ""
    over = f" of {plan.prefill.super_chunk:,} tokens" if plan.prefill.residuals else ""
    return f", {passes:,} {'pass' if passes == 1 else 'passes'}{over} over the layers"


def _from_file(read: PrefillMetrics) -> str | None:
    if read.expert_bytes_read is None:
        return None
    more = [("touched", read.expert_bytes_touched), ("in one pass of all", read.expert_bytes_one_pass)]
    told = ", ".join(f"{gib(num_bytes)} {name}" for name, num_bytes in more if num_bytes)
    return gib(read.expert_bytes_read) + (f" ({told})" if told else "")


def _decode(plan: Plan, metrics: Metrics) -> list[Figure]:
    made = metrics.decode
    waited = None if made.wait_s is None or plan.compute.runs_on == "cpu" else _seconds(made.wait_s)
    pace = _pace(made.tokens, made.seconds, made.tokens_per_s)
    hits = _hits((made.vram_hits, made.ram_hits, made.file_hits))
    moved = None if made.swaps is None else f"{made.swaps:,}" + ("" if made.swap_s is None else f" in {_seconds(made.swap_s)}")
    return _told(
        "decode",
        [
            ("written", pace),
            ("waited after the first token", waited),
            ("fell back to single visits", made.fallback),
            ("expert look-ups", hits),
            ("drafts", _drafts(made.drafted, made.accepted)),
            ("experts moved into slots", moved),
        ],
    )


def _drafts(drafted: int | None, accepted: int | None) -> str | None:
    if not drafted or accepted is None:
        return None
    return f"{accepted:,} of {drafted:,} guessed tokens were right ({accepted / drafted:.1%})"


def _told(part: str, lines: Sequence[tuple[str, str | None]]) -> list[Figure]:
    return [Figure(part, name, value) for name, value in lines if value is not None]


def _copied(num_bytes: int | None, seconds: float | None) -> str | None:
    if num_bytes is None:
        return None
    return gib(num_bytes) if seconds is None else f"{gib(num_bytes)} in {_seconds(seconds)}"


def _pace(tokens: int | None, seconds: float | None, per_s: float | None) -> str | None:
    if tokens is None:
        return None
    took = "" if seconds is None else f" in {_seconds(seconds)}"
    rate = "" if per_s is None else f", {per_s:,.1f} tokens/s"
    return f"{tokens:,} tokens{took}{rate}"


def _hits(hits: tuple[int | None, int | None, int | None]) -> str | None:
    counts = [hit for hit in hits if hit is not None]
    whole = sum(counts)
    if len(counts) < len(hits) or not whole:
        return None
    return ", ".join(f"{count / whole:.1%} {tier}" for count, tier in zip(counts, ("VRAM", "RAM", "file"), strict=True))


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds < 1 else f"{seconds:,.1f} s"
