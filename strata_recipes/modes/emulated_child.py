"""The process that carries out a run under a memory limit: reads what to do from its standard input, ends with the run's exit code."""

from __future__ import annotations

import dataclasses
import pickle
import sys

from strata_recipes.config.command_line import tell
from strata_recipes.errors import EXIT_INTERRUPTED, StrataError
from strata_recipes.modes.clock import Clock
from strata_recipes.modes.models import ready_pack
from strata_recipes.modes.prepare import prepare, recorded
from strata_recipes.modes.run import carry_out
from strata_recipes.modes.shortage import memory_told
from strata_recipes.plan.runnable import runnable


def main() -> int:
    """The config has every fact as a literal: nothing is probed here, and the plan is the one that was made outside."""
    try:
        config, overrides, folder_hash = pickle.load(sys.stdin.buffer)
        with memory_told(), ready_pack(config.model) as pack:
            prepared = dataclasses.replace(prepare(config, pack), folder_hash=folder_hash)
            runnable(prepared.plan)
            with recorded(prepared, overrides) as folder:
                carry_out(prepared, pack, folder, Clock())
        return 0
    except StrataError as error:
        return tell(error)
    except KeyboardInterrupt:
        print("strata: interrupted; nothing half-written counts as whole", file=sys.stderr)
        return EXIT_INTERRUPTED
