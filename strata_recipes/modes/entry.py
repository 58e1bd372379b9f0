"""The command line: composes the config and hands it to its mode. What is known to go wrong ends in one last line and its exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import NoReturn

from strata_recipes.config.choices import ModeName
from strata_recipes.config.compose import hydra_main
from strata_recipes.config.other_modes import passed_over, unread_words
from strata_recipes.config.schema import Config
from strata_recipes.config.task_schema import Sweep
from strata_recipes.errors import EXIT_FILES, EXIT_INTERRUPTED, ConfigError
from strata_recipes.modes import streams
from strata_recipes.modes.interrupt import Interrupt
from strata_recipes.modes.shortage import memory_told
from strata_recipes.sweeps.children import Children

Job = Callable[[Config, list[str]], int]


def main(argv: list[str] | None = None) -> int:
    """Run the command line (default: this process's) and return the exit code of design section 7."""
    return hydra_main(run_job, argv, Children())


def process() -> NoReturn:
    """The console script and run.py: this process is ours, from its streams and Ctrl-C to its end."""
    Interrupt().install()
    streams.install()
    try:
        code = main()
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO):
            raise
        print(
            f"strata: standard output cannot be written ({error.strerror}, errno {error.errno}): make room where it goes", file=sys.stderr
        )
        code = EXIT_FILES
    if code == EXIT_INTERRUPTED:
        sys.stderr.flush()
        os._exit(code)  # all is closed and recorded; torch and numba would take seconds more to unload
    sys.exit(code)


def run_job(config: Config, overrides: list[str]) -> int:
    """One composed config through its mode; a StrataError goes up to hydra_main, which tells it."""
    if config.sweep != Sweep():
        raise ConfigError("sweep.resume, sweep.jobs_per_gpu and sweep.metrics apply to a sweep only: add -m, or leave them out")
    shown = config.mode.name is ModeName.plan  # among the notes below its table
    for note in ([] if shown else passed_over(config)) + unread_words(overrides, config.mode.name):
        print(f"note: {note}", file=sys.stderr)
    try:
        with memory_told():
            return _mode(config.mode.name)(config, overrides)
    except KeyboardInterrupt:
        print("strata: interrupted; nothing half-written counts as whole", file=sys.stderr)
        return EXIT_INTERRUPTED


def _mode(name: ModeName) -> Job:
    """A mode is the function of its name in the module of its name; torch and numba cost seconds that mode=plan need not pay."""
    if name in (ModeName.run, ModeName.profile):
        # Torch's threads wait for each other by spinning unless told before it loads: with one other busy process on 2 cores
        # the demo then wrote 1.3 tokens/s, sleeping 43, and alone 50 either way.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    job: Job = getattr(import_module(f"strata_recipes.modes.{name.value}"), name.value)
    return job
