"""The command line: composes the config and hands it to its mode. What is known to go wrong ends in one last line and its exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable

from strata_recipes.config.choices import ModeName
from strata_recipes.config.compose import hydra_main
from strata_recipes.config.schema import Config
from strata_recipes.errors import EXIT_INTERRUPTED, DeviceError

Job = Callable[[Config, list[str]], int]


def main(argv: list[str] | None = None) -> int:
    """Run the command line (default: this process's) and return the exit code of design section 7."""
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
    from strata_recipes.modes.run import run

    return run
