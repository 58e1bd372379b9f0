"""What became of a run, as a value, and read back from its folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from strata_recipes.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_REFUSED


class State(Enum):
    planned = "planned"
    running = "running"
    done = "done"
    refused = "refused"  # config or plan: nothing was started
    failed = "failed"
    stopped = "stopped"  # by the user


@dataclass(frozen=True)
class Status:
    """The state; exit code and error line once it has ended."""

    state: State
    exit_code: int | None = None
    error: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"state": self.state.value}, indent=1, ensure_ascii=False) + "\n"


PLANNED, RUNNING, DONE = Status(State.planned), Status(State.running), Status(State.done, EXIT_DONE)


def read_status(folder: Path) -> Status | None:
    """What status.json of a results folder says; None where there is none, or it cannot be understood."""
    try:
        data = json.loads((folder / "status.json").read_text(encoding="utf-8"))
        return Status(State(data["state"]), data["exit_code"], data["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def ended(exit_code: int, error: str) -> Status:
    """The status of a run that ended with an error line."""
    states = {EXIT_DONE: State.done, EXIT_REFUSED: State.refused, EXIT_INTERRUPTED: State.stopped}
    return Status(states.get(exit_code, State.failed), exit_code, " ".join(error.split()) or None)
