"""A second process that holds locked RAM, so that this PC has as much left as another one. Knows no plan.

The ballast is charged to the control group of its process: this process's own, or one that is named.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import strata_recipes
from strata_recipes.errors import DeviceError
from strata_recipes.machine.limited import LimitedGroup
from strata_recipes.machine.memory import available
from strata_recipes.units import MiB, gib

_START = "import sys; sys.path.insert(0, sys.argv.pop()); from strata_recipes.machine.ballast_holder import main; main()"
_ENDING_S = 60.0  # giving hundreds of GiB back takes seconds
_ROUNDS = 4  # what else goes on moves the figure while the ballast grows
_NEAR_BYTES = 16 * MiB
_ELSE = "state less, or take emulate.ram=ledger"


class Ballast:
    """A running ballast process; `hold` sets what it holds, `close` ends it."""

    def __init__(self, group: LimitedGroup | None = None) -> None:
        command = [sys.executable, "-I", "-S", "-c", _START, str(Path(strata_recipes.__file__).parents[1])]
        pipe = subprocess.PIPE
        self.held_bytes = 0
        self.process = subprocess.Popen(
            group.command(command) if group else command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, encoding="utf-8"
        )

    def hold(self, num_bytes: int) -> None:
        """Returns once this many bytes are locked; DeviceError if the system refuses, with what it gave."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(f"{num_bytes}\n")
            self.process.stdin.flush()
        except OSError:
            raise self._ended(num_bytes) from None
        word, _, rest = self.process.stdout.readline().strip().partition(" ")
        held, _, reason = rest.partition(" ")
        if word not in ("held", "refused"):
            raise self._ended(num_bytes)
        self.held_bytes = int(held)
        if word == "refused":
            raise DeviceError(f"a ballast of {gib(num_bytes)} got {gib(self.held_bytes)} locked ({reason}){_lock_limit()}: {_ELSE}")

    def check(self) -> None:
        """DeviceError if the process is gone: what was measured since was not measured on the stated PC."""
        if self.process.poll() is not None:
            raise self._ended(self.held_bytes)

    def close(self) -> None:
        """Ends the process and waits for its end; closing twice is nothing."""
        if self.process.stdin and not self.process.stdin.closed:
            try:
                self.process.stdin.close()
            except OSError:
                self.process.kill()  # its end of the pipe is gone, so it is going
        try:
            self.process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()

    def _ended(self, num_bytes: int) -> DeviceError:
        code = self.process.wait()
        assert self.process.stderr
        words = self.process.stderr.read().strip().splitlines() if not self.process.stderr.closed else []
        why = f"signal {-code}" if code < 0 else f"exit code {code}"
        return DeviceError(
            f"the ballast process of {gib(num_bytes)} ended by itself ({why}{': ' + words[-1] if words else ''}), "
            f"most likely for lack of memory: {_ELSE}"
        )


@contextmanager
def locked(num_bytes: int, group: LimitedGroup | None = None) -> Iterator[Ballast]:
    """A ballast of this many bytes, ready at the start of the block and gone after it; refused where less is available."""
    free = _measure(group)()
    if num_bytes > free:
        raise DeviceError(f"a ballast of {gib(num_bytes)} cannot be locked: {gib(free)} is available here; {_ELSE}")
    with _running(group) as ballast:
        ballast.hold(num_bytes)
        yield ballast


@contextmanager
def leaving(left_bytes: int, group: LimitedGroup | None = None) -> Iterator[Ballast]:
    """A ballast that leaves this much RAM available, within 16 MiB unless other programs keep moving it (then 5 %)."""
    measure = _measure(group)
    if left_bytes > (free := measure()):
        raise DeviceError(f"{gib(left_bytes)} cannot be left available: {gib(free)} is available here; free memory, {_ELSE}")
    with _running(group) as ballast:
        for _ in range(_ROUNDS):
            over = measure() - left_bytes
            if abs(over) <= _NEAR_BYTES:
                break
            ballast.hold(max(0, ballast.held_bytes + over))
        found = measure()
        if abs(found - left_bytes) > max(_NEAR_BYTES, left_bytes // 20):
            raise DeviceError(
                f"{gib(left_bytes)} was to be left available and {gib(found)} is, with a ballast of {gib(ballast.held_bytes)}: "
                "other programs take and give back memory, end them first"
            )
        yield ballast


@contextmanager
def _running(group: LimitedGroup | None) -> Iterator[Ballast]:
    ballast = Ballast(group)
    try:
        yield ballast
        ballast.check()
    finally:
        ballast.close()


def _measure(group: LimitedGroup | None) -> Callable[[], int]:
    return group.available_bytes if group else lambda: available().num_bytes


def _lock_limit() -> str:
    """What the user may raise, where the system has such a limit."""
    if os.name == "nt":
        return ""
    import resource  # not on Windows

    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return "" if soft == resource.RLIM_INFINITY else f"; `ulimit -l` allows {gib(soft)} to all but root"
