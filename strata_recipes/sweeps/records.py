"""What became of each job of a sweep, one small JSON file a job, so that jobs in many processes never write the same one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from strata_recipes.errors import FileError
from strata_recipes.results.atomic import write_text
from strata_recipes.results.status import State, Status

JOBS = "jobs"


@dataclass(frozen=True)
class Job:
    """One job; `folder` is relative to the sweep's, with slashes. `resumed`: done before this sweep, and not run again."""

    number: int
    overrides: tuple[str, ...]
    status: Status
    config_hash: str | None = None
    folder: str | None = None
    resumed: bool = False
    seconds: float | None = None

    @property
    def state(self) -> State:
        return self.status.state


@dataclass(frozen=True)
class Counts:
    """Jobs by how they ended; `resumed` of the done ones were done before, `missing` ones were planned and never begun."""

    planned: int
    done: int
    resumed: int
    refused: int
    failed: int
    stopped: int
    missing: int

    def __str__(self) -> str:
        before = f" ({self.resumed} of them before)" if self.resumed else ""
        more = f", {self.missing} never begun" if self.missing else ""
        return (
            f"{self.planned} planned, {self.done} done{before}, {self.refused} refused, {self.failed} failed, {self.stopped} stopped{more}"
        )


def count(jobs: Sequence[Job], planned: int) -> Counts:
    """A job that is still planned or running when the sweep is over was lost with its worker: failed."""
    by_state = {state: sum(job.state is state for job in jobs) for state in State}
    lost = by_state[State.planned] + by_state[State.running]
    return Counts(
        planned=max(planned, len(jobs)),
        done=by_state[State.done],
        resumed=sum(job.resumed for job in jobs),
        refused=by_state[State.refused],
        failed=by_state[State.failed] + lost,
        stopped=by_state[State.stopped],
        missing=max(0, planned - len(jobs)),
    )


def write_job(sweep: Path, job: Job) -> None:
    """Replace the job's file."""
    (sweep / JOBS).mkdir(exist_ok=True)
    data = asdict(job) | {"status": asdict(job.status) | {"state": job.state.value}}
    write_text(sweep / JOBS / f"{job.number:03d}.json", json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def read_jobs(sweep: Path) -> list[Job]:
    """All jobs that were begun, in their order."""
    return sorted((_read(path) for path in (sweep / JOBS).glob("*.json")), key=lambda job: job.number)


def _read(path: Path) -> Job:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        status = data["status"]
        told = Status(State(status["state"]), status["exit_code"], status["error"])
        return Job(**data | {"overrides": tuple(data["overrides"]), "status": told})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path} does not read as a job's record ({type(error).__name__}: {error}): sweep again") from error
