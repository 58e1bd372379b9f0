"""A simulation as metrics.json and as a table for a person, marked for what it is. Simulates nothing itself."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from strata_recipes.decide import Decided
from strata_recipes.pack.index import PackIndex
from strata_recipes.results.metrics import (
    DecodeMetrics,
    EmulatedMetrics,
    ExpertsMetrics,
    MemoryMetrics,
    Metrics,
    PredictedMetrics,
    PrefillMetrics,
    StartupMetrics,
)
from strata_recipes.simulate.simulate import Timed
from strata_recipes.units import figure, gib


def simulated_metrics(decided: Decided, pack: PackIndex) -> Metrics:
    """The keys of a run; what only a run can count is null."""
    plan, timed = decided.plan, decided.timed
    start, p = timed.start, plan.predicted
    return Metrics(
        ready_s=p.ready_s,
        first_token_s=p.ready_s + p.prefill_s,
        startup=StartupMetrics(
            strategy=plan.startup.strategy,
            fill_s=start.fill_s,
            copy_s=start.copy_s,
            purge_s=start.purge_s,
            fill_bytes=plan.startup.fill_bytes,
            copy_bytes=plan.startup.copy_bytes,
            drive_bytes=round(start.drive_bytes),
        ),
        memory=MemoryMetrics(
            lowest_available_bytes=timed.ram.lowest_available_bytes,
            peak_rss_bytes=timed.ram.peak_rss_bytes,
            vram_peak_bytes=plan.vram.used_bytes,
            vram_budget_bytes=plan.vram.limit_bytes,
            ram_peak_bytes=plan.ram.used_bytes,
            ram_budget_bytes=plan.ram.limit_bytes,
        ),
        experts=ExpertsMetrics(plan.vram_slots, plan.ram_blobs, plan.file_blobs),
        prefill=_prefill(decided, pack),
        decode=_decode(decided, pack),
        predicted=PredictedMetrics(p.ready_s, p.prefill_tokens_per_s, p.decode_tokens_per_s),
        emulated=EmulatedMetrics(by=("all of it: simulated, nothing ran",)),
        simulated=True,
    )


def _prefill(decided: Decided, pack: PackIndex) -> PrefillMetrics:
    plan, moved = decided.plan, decided.timed.prompt.bytes
    prompt = plan.prefill
    return PrefillMetrics(
        order=prompt.order,
        tokens=prompt.prompt_tokens,
        seconds=plan.predicted.prefill_s,
        tokens_per_s=plan.predicted.prefill_tokens_per_s,
        expert_bytes_read=round(moved.drive + moved.cached),
        expert_bytes_touched=round(moved.touched),
        expert_bytes_one_pass=one_pass_bytes(decided, pack),
        expert_bytes_staged=round(moved.staged),
        drive_bytes=round(moved.drive),
        super_chunks=-(-prompt.prompt_tokens // prompt.super_chunk),
    )


def one_pass_bytes(decided: Decided, pack: PackIndex) -> int:
    """All experts of the file once, at stored stride."""
    return pack.experts_file_bytes * decided.plan.file_blobs // pack.geometry.total_experts


def _decode(decided: Decided, pack: PackIndex) -> DecodeMetrics:
    plan, g = decided.plan, pack.geometry
    tokens, pace = plan.decode.max_new_tokens, plan.predicted.decode_tokens_per_s
    looked_up = max(0, tokens - 1) * g.num_layers * g.top_k  # the first token came with the prompt
    vram, ram, file = (round(share * looked_up) for share in decided.timed.reply.hits)
    return DecodeMetrics(tokens, tokens / pace, pace, vram, ram, file)


def simulated_table(decided: Decided, pack: PackIndex) -> Group:
    """Phases with their parts, bytes against the least that there is, hit rates, and what each phase waits for."""
    plan, timed = decided.plan, decided.timed
    table = Table(title="Simulated, not measured", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("phase", "what", "simulated"):
        table.add_column(name, overflow="fold")
    for phase, rows in (("start-up", _start_rows(timed)), ("prompt", _prompt_rows(decided, pack)), ("reply", _reply_rows(timed))):
        for number, (what, value) in enumerate(rows):
            table.add_row(phase if not number else "", what, value)
        table.add_section()
    head = Text(f"{plan.model.name} on {plan.hardware}: {plan.experts.mode}, {plan.startup.strategy} start, {plan.prefill.order}")
    return Group(head, table)


def _start_rows(timed: Timed) -> list[tuple[str, str]]:
    start = timed.start
    parts = [
        ("process and context", start.launch_s),
        ("dense weights", start.dense_s),
        ("purge of cached pages", start.purge_s),
        ("VRAM fill", start.fill_s),
        ("RAM copy", start.copy_s),
    ]
    rows = [(f"  {name}", f"{figure(seconds)} s") for name, seconds in parts if seconds]
    ready = ("ready", f"{figure(start.ready_s)} s")
    drive = ("read from the drive", gib(start.drive_bytes))
    return [
        ready,
        *rows,
        drive,
        ("lowest available RAM", gib(timed.ram.lowest_available_bytes)),
        ("waits for", timed.prediction.start_bound),
    ]


def _prompt_rows(decided: Decided, pack: PackIndex) -> list[tuple[str, str]]:
    timed, tokens = decided.timed, decided.plan.prefill.prompt_tokens
    moved, p = timed.prompt.bytes, timed.prediction
    rows = [("read", f"{tokens:,} tokens in {figure(p.prefill_s)} s, {figure(p.prefill_tokens_per_s)} tokens/s")]
    if decided.plan.file_blobs:
        least = f"at least {gib(moved.touched)}, each expert that is touched once; one pass of all is {gib(one_pass_bytes(decided, pack))}"
        rows += [("experts from the drive", f"{gib(moved.drive)} ({least})"), ("experts from the page cache", gib(moved.cached))]
    rows += [("experts from RAM", gib(moved.ram)), ("experts from VRAM slots", gib(moved.vram))]
    if moved.staged:
        rows.append(("experts over PCIe", gib(moved.staged)))
    return [*rows, ("waits for", p.prefill_bound)]


def _reply_rows(timed: Timed) -> list[tuple[str, str]]:
    touched = timed.reply.round.touched
    vram, ram, file = timed.reply.hits
    rows = [
        ("written", f"{figure(timed.prediction.decode_tokens_per_s)} tokens/s"),
        ("choices in VRAM, RAM, file", f"{vram:.1%}, {ram:.1%}, {file:.1%}"),
    ]
    if touched.file:
        rows.append(("of the file's, in the page cache", f"{touched.cached / touched.file:.1%}"))
    return [*rows, ("waits for", timed.prediction.decode_bound)]
