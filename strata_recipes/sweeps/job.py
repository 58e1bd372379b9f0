"""One job of a sweep, from its overrides to its record: skipped where it is done already, else a process of its own in its own folder."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from strata_recipes.config.compose import config_hash, resolved_yaml
from strata_recipes.config.schema import Config
from strata_recipes.config.task_schema import Sweep
from strata_recipes.errors import EXIT_DEVICE, EXIT_DONE, EXIT_INTERRUPTED, ConfigError
from strata_recipes.machine.gpu import visible_uuids
from strata_recipes.machine.rates_cache import cache_folder
from strata_recipes.results.record import ResultsFolder
from strata_recipes.results.status import DONE, PLANNED, RUNNING, State, Status, ended, read_status
from strata_recipes.sweeps.child import clean_console, last_error, run_child
from strata_recipes.sweeps.earlier import done_folder
from strata_recipes.sweeps.records import Job, write_job
from strata_recipes.sweeps.turns import turn, wants_card


def run_job(sweep: Path, number: int, composed: Callable[[], Config], overrides: Sequence[str]) -> Job:
    """The job's end. A config that is refused is an end too; KeyboardInterrupt goes on once the child is gone and all is recorded."""
    job = Job(number, tuple(overrides), PLANNED)
    try:
        config = composed()
    except ConfigError as error:
        return _told(sweep, dataclasses.replace(job, status=ended(error.exit_code, str(error))))
    job = dataclasses.replace(job, config_hash=config_hash(config))
    earlier = done_folder(Path(config.results.root).expanduser(), config_hash(config)) if config.sweep.resume else None
    if earlier is not None:
        return _told(sweep, dataclasses.replace(job, status=DONE, folder=_relative(earlier, sweep), resumed=True))
    return _started(sweep, job, config)


def _started(sweep: Path, job: Job, config: Config) -> Job:
    folder = ResultsFolder(sweep / f"{job.number:03d}_{job.config_hash}")
    folder.path.mkdir()
    alone = dataclasses.replace(config, sweep=Sweep())  # what concerns the sweep is no concern of a run
    stated = resolved_yaml(alone)
    folder.write_before(stated, job.overrides, None, None)
    job = dataclasses.replace(job, status=RUNNING, folder=folder.path.name)
    write_job(sweep, job)
    begin = time.monotonic()
    try:
        uuids = visible_uuids() if wants_card(config) else []
        with turn(uuids, config.sweep.jobs_per_gpu, cache_folder()) as environment:
            code = run_child(folder.path, environment)
        status = _status(folder, code)
    except KeyboardInterrupt:
        status = ended(EXIT_INTERRUPTED, "interrupted")
        raise
    except BaseException as error:  # a bug, or no process to be had: the record says so, and it goes on
        status = ended(1, f"{type(error).__name__}: {error}")
        raise
    finally:
        if read_status(folder.path) != status:
            folder.end(status)
        clean_console(folder.path, stated + "\n".join(job.overrides))
        _told(sweep, dataclasses.replace(job, status=status, seconds=round(time.monotonic() - begin, 3)))
    return dataclasses.replace(job, status=status)


def _status(folder: ResultsFolder, code: int) -> Status:
    """What the child recorded itself; where it ended too early or too hard for that, what its exit code says."""
    told = read_status(folder.path)
    if told is not None and told.exit_code == code:
        return told
    if code == EXIT_DONE:
        return DONE
    if code < 0:
        return ended(EXIT_DEVICE, f"ended by signal {-code}, most likely for lack of memory or by a fault of a driver: see console.log")
    return ended(code, last_error(folder.path) or f"ended with exit code {code} and no word")


def _told(sweep: Path, job: Job) -> Job:
    """Recorded, and said in one line."""
    write_job(sweep, job)
    words = "done before" if job.resumed else job.state.value
    took = "" if job.seconds is None else f" after {job.seconds:.1f} s"
    error = "" if job.state is State.done else f": {job.status.error}"
    print(f"job {job.number} {words}{took} ({' '.join(job.overrides)}){error}", file=sys.stderr, flush=True)
    return job


def _relative(folder: Path, sweep: Path) -> str:
    return Path(os.path.relpath(folder.absolute(), sweep.absolute())).as_posix()
