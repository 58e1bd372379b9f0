"""The command line: composes the config and hands it to its mode. What is known to go wrong ends in one last line and its exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable

from strata_recipes.config.choices import ModeName
from strata_recipes.config.compose import hydra_main
from strata_recipes.config.schema import Config
from strata_recipes.errors import EXIT_INTERRUPTED, DeviceError

Job = Callable[[Config, list[str]], int]


def main(argv: list[str] | None = None) -> int:
    """Run the command line (default: this process's) and return the exit code of design section 7."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a pipe on Windows would take cp1252, and end the run at the first character that it lacks
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")
    return hydra_main(run_job, argv)


def run_job(config: Config, overrides: list[str]) -> int:
    """One composed config through its mode; a StrataError goes up to hydra_main, which tells it."""
    try:
        return _mode(config.mode.name)(config, overrides)
    except MemoryError as error:
        raise DeviceError(f"out of memory ({error or 'no more to be had'}): lower experts.ram_budget or kv.max_context") from error
    except KeyboardInterrupt:
        print("strata: interrupted; nothing half-written counts as whole", file=sys.stderr)
        return EXIT_INTERRUPTED


def _mode(name: ModeName) -> Job:
    # Imported here: torch and numba cost seconds that mode=plan and --help need not pay.
    if name is ModeName.plan:
        from strata_recipes.modes.plan import plan

        return plan
    if name is ModeName.pack:
        from strata_recipes.modes.pack import pack

        return pack
    # Torch's threads wait for each other by spinning unless told before it loads: with one other busy process on 2 cores
    # the demo then wrote 1.3 tokens/s, sleeping 43, and alone 50 either way.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from strata_recipes.modes.run import run

    return run
