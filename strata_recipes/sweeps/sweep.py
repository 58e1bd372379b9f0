"""A whole sweep: its folder before the first job, and the summary after the last. Starts nothing."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table
from rich.text import Text

from strata_recipes.config.names import nearest
from strata_recipes.errors import EXIT_DEVICE, EXIT_DONE, EXIT_INTERRUPTED, ConfigError, FileError
from strata_recipes.results.atomic import why, write_text
from strata_recipes.results.places import without_places
from strata_recipes.sweeps.figures import Figure, job_figures, known_metrics
from strata_recipes.sweeps.plot import plot
from strata_recipes.sweeps.records import Counts, Job, count, read_jobs
from strata_recipes.sweeps.table import Row, cells, long_csv, readme, row, shown_metrics

_COLUMNS = 140  # of the table where stdout is no terminal
_MOST_AT_ONCE = 1000


def begin(settings: DictConfig) -> Path:
    """The sweep's folder, made for it alone; ConfigError where what is asked of the sweep cannot be."""
    _check(settings)
    folder = _own_folder(Path(str(settings.hydra.sweep.dir)).expanduser().absolute())
    _write(folder, {"overrides": _overrides(settings), "planned": planned_jobs(settings)})
    return folder


def end(folder: Path, settings: DictConfig, interrupted: bool) -> int:
    """The summary, as table, CSV, plot and sweep.json; the sweep's exit code: its first job's that is not 0."""
    jobs = read_jobs(folder)
    counts = count(jobs, planned_jobs(settings) or len(jobs))
    code = EXIT_INTERRUPTED if interrupted else exit_code(jobs, counts)
    rows = [row(job, figures_of(folder, job)) for job in jobs]
    metrics = shown_metrics(rows, list(settings.sweep.metrics))
    write_text(folder / "summary.csv", long_csv(rows))
    plotted = plot(folder, rows, metrics)
    write_text(folder / "README.md", readme(f"{folder.parent.name}/{folder.name}", rows, counts, metrics, plotted))
    _write(folder, {"overrides": _overrides(settings), **asdict(counts), "exit_code": code})
    _tidy(folder)
    _show(rows, counts, metrics, folder)
    return code


def exit_code(jobs: Sequence[Job], counts: Counts) -> int:
    """0 where every planned job is done."""
    codes = [job.status.exit_code for job in jobs if job.status.exit_code != EXIT_DONE]
    if codes:
        return EXIT_DEVICE if codes[0] is None else codes[0]
    return EXIT_DEVICE if counts.missing else EXIT_DONE


def planned_jobs(settings: DictConfig) -> int | None:
    """How many jobs the sweeper means to start; None where it does not tell before it has."""
    sweeper = settings.hydra.sweeper
    if not str(sweeper.get("_target_", "")).endswith(".BasicSweeper"):
        return sweeper.get("n_trials")
    lines = [f"{key}={value}" for key, value in (sweeper.params or {}).items()]
    parsed = OverridesParser.create().parse_overrides([*lines, *_overrides(settings)])
    return len(BasicSweeper.split_arguments(parsed, None)[0])


def _overrides(settings: DictConfig) -> list[str]:
    """As they were typed: what they point at may be known to a job alone."""
    return [str(line) for line in OmegaConf.to_container(settings.hydra.overrides.task, resolve=False)]


def _check(settings: DictConfig) -> None:
    known, asked = known_metrics(), list(settings.sweep.metrics)
    faults = [f"sweep.metrics: {name!r} is no key of metrics.json, {nearest(str(name), known)}" for name in asked if name not in known]
    if "n_trials" in settings.hydra.sweeper and not asked:
        faults.append("this sweeper optimizes, but not what: add for example 'sweep.metrics=[decode.tokens_per_s]'")
    if faults:
        raise ConfigError(faults)


def _own_folder(wanted: Path) -> Path:
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, _MOST_AT_ONCE + 1):
            folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}_{number}")
            try:
                folder.mkdir()
                return folder
            except FileExistsError:
                continue
    except OSError as error:
        raise FileError(
            f"no folder for the sweep can be made in {wanted.parent} ({why(error, wanted.parent)}): set results.root"
        ) from error
    raise FileError(f"{wanted} and {_MOST_AT_ONCE - 1} more of that name are there: set hydra.sweep.dir to another folder")


def _write(folder: Path, data: dict[str, object]) -> None:
    write_text(folder / "sweep.json", json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def figures_of(folder: Path, job: Job) -> dict[str, Figure]:
    """A done job's figures; {} for another."""
    return {} if job.folder is None or job.status.exit_code != EXIT_DONE else job_figures(folder / job.folder)


def _tidy(folder: Path) -> None:
    """What launchers and Hydra leave holds this machine's names and places."""
    shutil.rmtree(folder / ".submitit", ignore_errors=True)
    settings = folder / "multirun.yaml"
    if settings.exists():
        kept = OmegaConf.load(settings)
        kept.pop("hydra", None)
        write_text(settings, without_places(OmegaConf.to_yaml(kept)))


def _show(rows: Sequence[Row], counts: Counts, metrics: Sequence[str], folder: Path) -> None:
    head, *body = cells(rows, metrics)
    table = Table(box=None, pad_edge=False)
    for name in head:
        table.add_column(Text(name), overflow="fold")
    for line in body:
        table.add_row(*(Text(text) for text in line))
    console = Console() if sys.stdout.isatty() else Console(width=_COLUMNS)
    console.print(table)
    console.print(Text(f"sweep: {counts}"))
    console.print(Text(f"sweep folder: {folder}"), soft_wrap=True)
