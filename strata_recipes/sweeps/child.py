"""A job's process: the program once more, from the resolved config in the job's folder, with all it says in console.log.

Its standard input is a pipe that says nothing: when it closes, because the sweep was stopped or has died, the job ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

import strata_recipes
from strata_recipes.config.quoting import quoted
from strata_recipes.results.atomic import write_text
from strata_recipes.results.places import without_places

CONSOLE = "console.log"
_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from strata_recipes.modes.sweep_child import main; main()"
_ENDING_S = 2.0  # that a stopped job has to end by itself
_LAST_BYTES = 64 << 10


def run_child(folder: Path, environment: Mapping[str, str]) -> int:
    """Its exit code; negative where a signal ended it. KeyboardInterrupt ends it too."""
    line = ["--config-dir", str(folder), "--config-name", "resolved", "hydra.mode=RUN", quoted("results.folder", str(folder))]
    command = [sys.executable, "-X", "utf8", "-c", _START, str(Path(strata_recipes.__file__).parents[1]), *line]
    # -X utf8: under a narrow locale Python could not open a file whose name the config states
    with (folder / CONSOLE).open("wb") as console:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=console,
            stderr=subprocess.STDOUT,
            env=os.environ | dict(environment),
            start_new_session=True,  # Ctrl-C reaches it once, from here
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        try:
            return child.wait()
        finally:
            _end(child)


def last_error(folder: Path) -> str | None:
    """The program's last words in console.log, which say why it ended: its `strata:` line, or the end of a traceback."""
    with (folder / CONSOLE).open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_BYTES))
        lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    told = [line.removeprefix("strata: ") for line in lines if line.startswith("strata: ")]
    return told[-1] if told else (lines[-1] if lines else None)


def clean_console(folder: Path, stated: str) -> None:
    """Takes this machine's places out of console.log, but for those in `stated`; an empty one goes."""
    path = folder / CONSOLE
    text = path.read_bytes().decode("utf-8", "replace")
    if text:
        write_text(path, without_places(text, stated))
    else:
        path.unlink()


def _end(child: subprocess.Popen[bytes]) -> None:
    """Nothing to do where it has ended; else it is asked to, and killed with all it started if it does not."""
    assert child.stdin
    child.stdin.close()
    try:
        child.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        family = [*psutil.Process(child.pid).children(recursive=True), child]
        for process in family:
            process.kill()
        child.wait()
