"""emulate.ram: a run in a child process under a memory limit, or beside a process that holds the RAM that the other PC lacks."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import strata_recipes
from strata_recipes.config.choices import EmulateRam
from strata_recipes.config.schema import Config
from strata_recipes.errors import EXIT_INTERRUPTED, DeviceError
from strata_recipes.files.residency import drop_cached
from strata_recipes.machine import ballast
from strata_recipes.machine.limited import limited
from strata_recipes.modes.holds import ram_needed
from strata_recipes.modes.models import ready_pack
from strata_recipes.modes.prepare import Prepared, prepare
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.runnable import runnable

_START = "import sys; sys.path.insert(0, sys.argv.pop()); from strata_recipes.modes.emulated_child import main; sys.exit(main())"
_ENDING_S = 2.0  # that the child has to end by itself after Ctrl-C


def room_bytes(prepared: Prepared, index: PackIndex) -> int:
    """RAM that the run may take here: what the named PC has available, and the VRAM that stands in RAM beside it."""
    return prepared.machine.ram_available_bytes + ram_needed(prepared.plan, index) - prepared.plan.ram.used_bytes


@contextmanager
def beside_ballast(prepared: Prepared, index: PackIndex) -> Iterator[None]:
    """With emulate.ram=ballast as much RAM is left as the named PC has; else nothing happens."""
    if prepared.config.emulate.ram is not EmulateRam.ballast:
        yield
        return
    runnable(prepared.plan)  # no gigabytes are locked for a plan that is refused then
    with ballast.leaving(room_bytes(prepared, index)):
        yield


def run_in_group(config: Config, overrides: list[str]) -> int:
    """Packs and plans outside of the limit, drops the pack from the page cache (its pages would not count), runs inside."""
    with ready_pack(config.model) as pack:
        drop_cached(pack.experts_path)
        prepared = prepare(config, pack)
        runnable(prepared.plan)
        size = room_bytes(prepared, pack.index)
    with limited(size) as group:
        command = group.command([sys.executable, "-c", _START, str(Path(strata_recipes.__file__).parents[1])])
        code = _child(command, pickle.dumps((prepared.config, overrides, prepared.folder_hash)))
    if code < 0:
        raise DeviceError(
            f"the run was ended by signal {-code} under its limit of {size} bytes, most likely for lack of memory: plan for less"
        )
    return code


def _child(command: Sequence[str], order: bytes) -> int:
    """Its exit code. In a session of its own, so that Ctrl-C reaches it once, from here."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        assert child.stdin
        child.stdin.write(order)
        child.stdin.close()
        return child.wait()
    except KeyboardInterrupt:
        child.send_signal(signal.SIGINT)
        return EXIT_INTERRUPTED
    finally:
        try:
            child.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
