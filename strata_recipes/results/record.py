"""One run's folder: made for it alone, small text files that reproduce it. Does not know how the run works."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import numpy as np

from strata_recipes.errors import FileError
from strata_recipes.plan.plan import Plan
from strata_recipes.results.atomic import to_utf8, why, write_binary, write_text
from strata_recipes.results.identity import Identity
from strata_recipes.results.metrics import Metrics
from strata_recipes.results.names import safe_name
from strata_recipes.results.places import without_places
from strata_recipes.results.readme import readme
from strata_recipes.results.samples import Sample, to_csv
from strata_recipes.results.status import PLANNED, RUNNING, Status, read_status

_MOST_IN_A_SECOND = 1000


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind. `logits`: float32 rows, when asked for."""

    metrics: Metrics
    identity: Identity
    samples: Sequence[Sample] = ()
    logits: np.ndarray | None = None
    reply: str | None = None  # JSON text of the tokens and what they say, kept to the letter


class ResultsFolder:
    """`write_before` when the plan stands, `started` when the work starts, `write_after` at the end, `end` on an error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stated = ""  # the config's own text: paths in it are the user's to publish

    @classmethod
    def make(cls, root: Path, kind: str, config_hash: str, now: datetime) -> ResultsFolder:
        """A new folder `root/kind/date_time_hash`; if another run has that name, the next free number is appended."""
        name = f"{now:%Y-%m-%d_%H-%M-%S}_{safe_name(config_hash)}"
        try:
            parent = root / safe_name(kind)
            parent.mkdir(parents=True, exist_ok=True)
            return cls(_make_alone(parent, name))
        except OSError as error:
            raise FileError(
                f"no results folder can be made in {root} ({why(error, root)}): set results.root to a folder that can be written"
            ) from error

    @classmethod
    def at(cls, path: Path) -> ResultsFolder:
        """The stated folder: new, or one that was made ready for this very run; never one that holds another's results."""
        try:
            path.mkdir(parents=True, exist_ok=False)
        except FileExistsError as error:
            if read_status(path) != PLANNED:
                raise FileError(f"results.folder={path} is there and not made ready for a run: name a new one, or leave it out") from error
        except OSError as error:
            raise FileError(f"results.folder={path} cannot be made ({why(error, path)}): name a folder that can be written") from error
        return cls(path)

    @property
    def name(self) -> str:
        """The folder below the results root, as `run/<date>_<time>_<hash>`."""
        return f"{self.path.parent.name}/{self.path.name}"

    def write_before(self, resolved: str, overrides: Sequence[str], machine: str | None, plan: Plan | None) -> None:
        """What reproduces the run, before any work. `machine` is machine.json's text; null where it came to no plan."""
        self._stated = resolved + "\n".join(overrides)
        self.write("resolved.yaml", resolved)
        lines = "".join(f"- {_scalar(line)}\n" for line in overrides)
        if not (self.path / "overrides.yaml").exists():  # else of whoever made the folder ready, who knows what the user said
            write_text(self.path / "overrides.yaml", lines or "[]\n")  # the user's own words: a path in them is theirs to publish
        if machine is not None:
            self.write("machine.json", machine)
        if plan is not None:
            self.write("plan.json", plan.to_json())
        self.set_status(PLANNED)

    def started(self) -> None:
        """The work begins."""
        self.set_status(RUNNING)

    def log(self, line: str) -> None:
        """One more line of run.log."""
        data = to_utf8(self._clean(line).rstrip("\n") + "\n")
        try:
            with (self.path / "run.log").open("ab") as file:
                file.write(data)
        except OSError as error:
            raise FileError(f"run.log cannot be written ({why(error, self.path, len(data))}): make room under results.root") from error

    def write_after(self, plan: Plan, outcome: Outcome, status: Status) -> None:
        """The measurements, the page for a person, and last the status, so that `done` means that all is there."""
        if outcome.logits is not None:
            rows = np.ascontiguousarray(outcome.logits, np.float32)
            write_binary(self.path / "logits.npy", lambda file: _save(file, rows), num_bytes=rows.nbytes)
        self.write("metrics.json", outcome.metrics.to_json())
        self.write("identity.json", outcome.identity.to_json())
        self.write("samples.csv", to_csv(outcome.samples))
        if outcome.reply is not None:
            write_text(self.path / "reply.json", outcome.reply)
        self.write("README.md", readme(plan, outcome.metrics, status, self.name))
        self.set_status(status)

    def write_simulated(self, plan: Plan, metrics: Metrics, status: Status) -> None:
        """The figures of a simulation, which leaves no identity and no samples."""
        self.write("metrics.json", metrics.to_json())
        self.write("README.md", readme(plan, metrics, status, self.name))
        self.set_status(status)

    def end(self, status: Status, plan: Plan | None = None) -> None:
        """An end without measurements: the error line in status.json, run.log and README.md."""
        if status.error:
            self.log(status.error)
        if plan is not None:
            self.write("README.md", readme(plan, Metrics(), status, self.name))
        self.set_status(status)

    def set_status(self, status: Status) -> None:
        """Replace status.json."""
        self.write("status.json", status.to_json())

    def write(self, name: str, text: str) -> None:
        """One more file, without this machine's places."""
        write_text(self.path / name, self._clean(text))

    def _clean(self, text: str) -> str:
        return without_places(text, self._stated)


def _make_alone(parent: Path, name: str) -> Path:
    for number in range(1, _MOST_IN_A_SECOND + 1):
        path = parent / (name if number == 1 else f"{name}_{number}")
        try:
            path.mkdir(exist_ok=False)
            return path
        except FileExistsError:
            continue
    raise FileExistsError(17, f"{_MOST_IN_A_SECOND} runs of one config in one second")


def _save(file: BinaryIO, rows: np.ndarray) -> None:
    """The bytes of numpy.save, which on a full drive loses the errno."""
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(rows))
    file.write(rows.data)


def _scalar(text: str) -> str:
    """A JSON string is a YAML scalar too, once what YAML takes for a control character is escaped."""
    quoted = json.dumps(to_utf8(text).decode("utf-8"), ensure_ascii=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", lambda match: f"\\u{ord(match[0]):04x}", quoted)
