"""mode=simulate: what a run would take, from the schedule that it would execute; or a table of published figures, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator

from strata_recipes.config.schema import Config
from strata_recipes.decide import Decided
from strata_recipes.modes.compared import comparison_json, comparison_table
from strata_recipes.modes.models import model_facts
from strata_recipes.modes.prepare import prepare, recorded
from strata_recipes.modes.progress import console
from strata_recipes.modes.published import compare, published
from strata_recipes.modes.simulated import simulated_metrics, simulated_table
from strata_recipes.results.status import DONE
from strata_recipes.results.timeline import Bar, timeline
from strata_recipes.simulate.clock import NAMES, VAIN
from strata_recipes.simulate.simulate import Timed
from strata_recipes.units import figure


def simulate(config: Config, overrides: list[str]) -> int:
    """Plans and simulates; prints the phases, and leaves metrics.json and timeline.svg in a results folder."""
    if config.mode.table is not None:
        return _table(config, overrides, config.mode.table)
    with model_facts(config.model) as facts:
        prepared = prepare(config, facts)
    with recorded(prepared, overrides) as folder:
        console().print(simulated_table(prepared.decided, facts.index))
        folder.write("timeline.svg", timeline_of(prepared.decided))
        folder.write_simulated(prepared.plan, simulated_metrics(prepared.decided, facts.index), DONE)
    print(f"results: {folder.path}")
    return 0


def _table(config: Config, overrides: list[str], name: str) -> int:
    table = published(name)
    with model_facts(config.model) as facts:
        prepared = prepare(config, facts)
    with recorded(prepared, overrides) as folder:
        cells = compare(table)
        console().print(comparison_table(table, cells))
        folder.write("comparison.json", comparison_json(table, cells))
        folder.end(DONE, prepared.plan)
    print(f"results: {folder.path}")
    return 0


def timeline_of(decided: Decided) -> str:
    """Start, prompt, reply, one behind the other; passes of the prompt that are alike are one bar."""
    timed, plan = decided.timed, decided.plan
    ready, read = timed.start.ready_s, timed.prompt.seconds
    reply = plan.decode.max_new_tokens / plan.predicted.decode_tokens_per_s
    phases = [(f"ready {figure(ready)} s", ready), (f"prompt read {figure(ready + read)} s", ready + read)]
    phases += [(f"{plan.decode.max_new_tokens} tokens {figure(ready + read + reply)} s", ready + read + reply)] if reply else []
    bars = [*_start_bars(timed), *_prompt_bars(timed, ready), *_reply_bars(timed, ready + read, reply)]
    bars.sort(key=lambda bar: NAMES.index(bar.lane))
    return timeline(f"{plan.model.name} on {plan.hardware}, simulated", phases, bars)


def _start_bars(timed: Timed) -> Iterator[Bar]:
    start = timed.start
    parts = (
        ("process", start.launch_s),
        ("dense weights", start.dense_s),
        ("purge", start.purge_s),
        ("fill", start.fill_s),
        ("copy", start.copy_s),
    )
    at = 0.0
    drive = start.drive_s / (start.ready_s - start.launch_s) if start.ready_s > start.launch_s else 0.0
    for label, seconds in parts:
        if seconds:
            lane, share = ("compute", 0.1) if label == "process" else ("drive", drive)
            yield Bar(lane, label, at, at + seconds, share)
        at += seconds


def _prompt_bars(timed: Timed, start: float) -> Iterator[Bar]:
    for span in timed.prompt.spans:
        for name, busy in zip(NAMES[:VAIN], span.busy_s, strict=False):
            if busy:
                yield Bar(name, span.label, start + span.start_s, start + span.stop_s, busy / (span.stop_s - span.start_s))


def _reply_bars(timed: Timed, start: float, seconds: float) -> Iterator[Bar]:
    for name, busy in zip(NAMES[:VAIN], timed.reply.busy_s, strict=False):
        if busy and seconds:
            yield Bar(name, "reply", start, start + seconds, busy / timed.reply.round.seconds)
