"""mode=bench: arms in interleaved pairs, each run a process of its own from its resolved config, and a report of what they differ in."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from strata_recipes.bench.order import run_order
from strata_recipes.bench.runs import Run, Sample
from strata_recipes.bench.summary import Asked, Summary, summarised
from strata_recipes.bench.words import which
from strata_recipes.config.bench_schema import Bench
from strata_recipes.config.choices import BenchCache, Source
from strata_recipes.config.compose import config_hash, resolved_yaml
from strata_recipes.config.names import nearest
from strata_recipes.config.schema import Config
from strata_recipes.errors import EXIT_DONE, ConfigError
from strata_recipes.machine.facts import Machine
from strata_recipes.machine.probe import differences, resolve_hardware
from strata_recipes.modes.bench_arms import Arm, arm_yaml, composed_arms
from strata_recipes.modes.bench_cache import set_cache
from strata_recipes.modes.bench_report import terminal, write_report
from strata_recipes.modes.bench_run import Order, run_one
from strata_recipes.modes.models import ready_pack
from strata_recipes.modes.prepare import cached_share, drive_folder, end_told, recipe
from strata_recipes.modes.progress import console
from strata_recipes.results.machine_facts import machine_json
from strata_recipes.results.metrics import Metrics
from strata_recipes.results.names import safe_name
from strata_recipes.results.record import ResultsFolder
from strata_recipes.results.status import DONE, ended

_SHARE = {BenchCache.cold: 0.0, BenchCache.warm: 1.0}  # of the pack in the page cache when a run starts: a fact of its plan


def bench(config: Config, overrides: list[str]) -> int:
    """The exit code: 0 where every arm has a counted run."""
    _check_metrics(config.bench.metrics)
    arms = composed_arms(config, overrides)
    packs = {arm.name: _packed(arm, config.bench) for arm in arms}
    arms, resolved, machine = _with_facts(config, arms)
    folder = ResultsFolder.make(Path(config.results.root).expanduser(), recipe() or "bench", config_hash(resolved), datetime.now())
    folder.write_before(resolved_yaml(resolved), overrides, machine_json(machine, differences(machine)), None)
    with end_told(folder):
        folder.started()
        runs, samples = _all_runs(arms, packs, config.bench, folder)
        summary = summarised(_asked(config), runs)
        write_report(summary, [(run, rows) for run, rows in zip(summary.runs, samples, strict=True)], folder)
        return _told(summary, folder)


def _all_runs(
    arms: Sequence[Arm], packs: dict[str, Path], bench: Bench, folder: ResultsFolder
) -> tuple[list[Run], list[tuple[Sample, ...]]]:
    by_name = {arm.name: arm for arm in arms}
    places = {arm.name: _written(arm, folder) for arm in arms}
    todo = [*([(0, arms[0].name)] if bench.warm_up else []), *run_order(list(by_name), bench.pairs)]
    runs, samples = [], []
    for place, (pair, name) in enumerate(todo):
        run, seen = run_one(Order(place, pair, by_name[name], places[name], packs[name]), bench, folder)
        runs.append(run)
        samples.append(seen)
        line = f"{place + 1} of {len(todo)}: {name}, {which(run)}: {run.mark.value} in {run.seconds:.1f} s {run.why}".rstrip()
        folder.log(line)
        print(line, file=sys.stderr, flush=True)
    return runs, samples


def _packed(arm: Arm, bench: Bench) -> Path:
    """The arm's pack, built now and brought to the page cache's state, so that no run does."""
    if arm.config.model.kind is Source.declared:
        raise ConfigError(f"bench.arms.{arm.name}: model {arm.config.model.name!r} has no weights to run: take model=demo or model=gguf")
    with ready_pack(arm.config.model) as pack:
        folder = pack.folder
    set_cache(bench.cache, folder)
    return folder


def _with_facts(config: Config, arms: Sequence[Arm]) -> tuple[list[Arm], Config, Machine]:
    """All arms and the bench itself with the facts of one probe, so that arms differ in what they say alone."""
    with ready_pack(arms[0].config.model) as pack:
        where, share = drive_folder(pack), _SHARE.get(config.bench.cache, cached_share(pack))
    hardware, machine = resolve_hardware(config.hardware, where, cached_share=lambda: share)
    found = []
    for arm in arms:
        same = arm.config.hardware == config.hardware
        own = hardware if same else resolve_hardware(arm.config.hardware, where, cached_share=lambda: share)[0]
        found.append(dataclasses.replace(arm, config=dataclasses.replace(arm.config, hardware=own)))
    lines = {arm.name: list(arm.lines) for arm in arms}
    return found, dataclasses.replace(config, hardware=hardware, bench=dataclasses.replace(config.bench, arms=lines)), machine


def _written(arm: Arm, folder: ResultsFolder) -> Path:
    name = f"arms/{arm.number}-{safe_name(arm.name)}"
    (folder.path / name).mkdir(parents=True)
    folder.write(f"{name}/resolved.yaml", arm_yaml(arm))
    return folder.path / name


def _asked(config: Config) -> Asked:
    bench = config.bench
    return Asked(
        name=f"{recipe() or 'bench'}: {config.model.name} on {config.hardware.name}",
        arms=bench.arms,
        metrics=bench.metrics,
        pairs=bench.pairs,
        cache=bench.cache.name,
        settle_s=bench.settle_s,
        same_tokens=bench.same_tokens,
        stop_below=bench.stop_below,
        stop_after_s=bench.stop_after_s,
    )


def _told(summary: Summary, folder: ResultsFolder) -> int:
    """The tables, then where the report lies, or as last line which arm has nothing to compare."""
    console().print(terminal(summary))
    print(f"report: {folder.path / 'report.html'}", flush=True)
    code = summary.exit_code()
    if code == EXIT_DONE:
        folder.set_status(DONE)
        return code
    empty = next(arm for arm in summary.asked.arms if not summary.counts(arm)["counted"])
    first = next(run for run in summary.measured if run.arm == empty)
    sentence = f"arm {empty} has no run that counts, its first was {first.mark.value} ({first.why}): mend the arm, or leave it out"
    folder.set_status(ended(code, sentence))
    folder.log(sentence)
    print(f"strata: {' '.join(sentence.split())}", file=sys.stderr)
    return code


def _check_metrics(keys: Sequence[str]) -> None:
    known = _numbers(dataclasses.asdict(Metrics()), "")
    faults = [f"bench.metrics: {key!r} is no figure of metrics.json, {nearest(key, known)}" for key in keys if key not in known]
    if faults or not keys:
        raise ConfigError(faults or "bench.metrics is empty: name at least one figure of metrics.json, such as ready_s")


def _numbers(part: dict[str, Any], prefix: str) -> list[str]:
    """Dotted keys of the figures; words and what is emulated are none."""
    found: list[str] = []
    for name, value in part.items():
        if isinstance(value, dict):
            found += _numbers(value, f"{prefix}{name}.") if name != "emulated" else []
        elif f"{prefix}{name}" not in ("startup.strategy", "startup.fallback", "prefill.order", "decode.fallback"):
            found.append(f"{prefix}{name}")
    return found
