"""Runs of a bench or a reproduction as forks (see tests/forks.py) of the processes that they are else. Knows no results."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

from strata_recipes.modes import children
from tests.forks import FORKS, begin

REAL = subprocess.Popen


def program(words: Sequence[str], out: str, environment: Mapping[str, str], cwd: str) -> None:
    """What such a process does: the command line, with all that it says in one file."""
    from strata_recipes.modes.entry import process

    begin(out)
    os.dup2(2, 1)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = ["-c", *words]
    process()


class Fork:
    """As much of a Popen as modes/children.py uses."""

    def __init__(self, words: Sequence[str], out: str) -> None:
        self._process = FORKS.Process(target=program, args=(list(words), out, dict(os.environ), os.getcwd()))
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a fork", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def fork_or_start(command: Sequence[str], *, stdout: IO[bytes], **more: Any) -> Any:
    """A fork where the command is this checkout's own program; anything else, and what a fork starts, is started as ever."""
    if list(command[2:4]) == [children._START, str(children.HERE)]:
        return Fork(command[4:], stdout.name)
    return REAL(command, stdout=stdout, **more)
