"""A run as a process of its own: started from a resolved config, in this or another checkout, watched, ended whole."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

import strata_recipes
from strata_recipes.bench.runs import Sample
from strata_recipes.bench.watchdog import Watchdog
from strata_recipes.config.quoting import quoted
from strata_recipes.machine import memory
from strata_recipes.modes.interrupt import raise_if_interrupted

HERE = Path(strata_recipes.__file__).parents[1]
_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from strata_recipes.modes.entry import process; process()"
_LOOK_EVERY_S = 0.1
_ENDING_S = 2.0  # that a run has to end by itself after Ctrl-C


@dataclass(frozen=True)
class Ended:
    """`exit_code` is negative for a signal; `stopped`: the watchdog's sentence."""

    exit_code: int
    seconds: float
    samples: tuple[Sample, ...]
    stopped: str | None
    last_line: str


def replay_command(config_dir: Path, results_root: Path, checkout: Path = HERE) -> list[str]:
    """What runs `config_dir/resolved.yaml` again, with its results below `results_root`."""
    words = ["--config-dir", str(config_dir), "--config-name", "resolved", quoted("results.root", str(results_root))]
    return strata_command(words, checkout)


def strata_command(words: Sequence[str], checkout: Path = HERE) -> list[str]:
    """The command line of the program as that checkout has it."""
    return [sys.executable, "-c", _START, str(checkout), *words]


def watched(command: Sequence[str], out: Path, watchdog: Watchdog) -> Ended:
    """Runs the command to its end, or until the watchdog bites; its words go to the file `out`."""
    start, samples, why = time.monotonic(), [], None
    with out.open("wb") as words:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=words, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            while child.poll() is None and why is None:
                samples.append(Sample(time.monotonic() - start, memory.available().num_bytes))
                why = watchdog.seen(samples[-1].seconds, samples[-1].available_bytes)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(_LOOK_EVERY_S)
                raise_if_interrupted()
        finally:
            end(child)
    return Ended(child.returncode, time.monotonic() - start, tuple(samples), why, _last_line(out))


def end(child: subprocess.Popen[bytes]) -> None:
    """Ctrl-C first, so that the run can record its end and undo what it stood in for; then it and all that it started."""
    if child.poll() is not None:
        return
    try:
        family = psutil.Process(child.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    child.terminate() if os.name == "nt" else child.send_signal(signal.SIGINT)
    try:
        child.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _last_line(out: Path) -> str:
    lines = out.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("strata: ") if lines else ""
