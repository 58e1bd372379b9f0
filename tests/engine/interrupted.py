"""What the process does that test_interrupt interrupts: a run that is held at one moment, which it tells the test."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from strata_recipes.config.choices import Strategy
from strata_recipes.config.schema import Startup
from strata_recipes.engine.session import Session
from strata_recipes.engine.startup_steps import Progress
from strata_recipes.engine.watching import Hooks
from strata_recipes.pack.reader import open_pack
from tests.engine.plans import nothing_left, oracle, plan_for
from tests.forks import begin

PLAIN = os.preadv


class Moment:
    """Where the run is held: in a callback of its main thread, or in the threads that read its drive."""

    def __init__(self, what: str, tell: Connection) -> None:
        self.what, self._tell, self._reads = what, tell, 0

    def now(self) -> None:
        self.told()
        for _ in range(6000):
            time.sleep(0.05)  # a signal just before one long sleep would not end it

    def told(self) -> None:
        self._tell.send("now")  # in one piece: two reading threads may get here together

    def progress(self, step: Progress) -> None:
        if self.what.removeprefix("unbuffered ") == f"{step.step} {100 * step.done_bytes // step.total_bytes // 10 * 10}":
            self.now()

    def read(self, handle: int, buffers: Sequence[memoryview], offset: int) -> int:
        self._reads += 1
        late = self.what == "late drive"
        if late and self._reads == 9:
            self.told()
        if self.what in ("dead drive", "unbuffered dead") and self._reads >= 9:
            self.now()
        time.sleep(0.05 if late else 0)
        return PLAIN(handle, buffers, offset)


def main(what: str, folder: Path, tell: Connection, errors: Path) -> None:
    """Ends with 130 where nothing of ours was left, 2 where something was, 1 where nobody interrupted it."""
    begin(errors)
    moment = Moment(what, tell)
    os.preadv = moment.read
    direct = what.endswith("drive")
    startup = Startup(Strategy.unbuffered if "unbuffered" in what else Strategy.mapped, copy_batch=3, fill_batch=2)
    with open_pack(folder) as pack:
        file_io = "direct" if direct else "buffered"
        plan = plan_for(pack, mode="mapped" if direct else "resident", slots=10, file_io=file_io, chunk=1, startup=startup)
        session, code = Session(plan, pack, hooks=Hooks(progress=moment.progress)), 1
        try:
            with session:
                ids = oracle("tiny-q2_0.greedy")["ids"]
                session.prompt(ids, on_chunk=lambda done, total: what == "prompt" and done == 20 and moment.now())
                session.generate(on_token=lambda token: what == "reply" and moment.now())
        except KeyboardInterrupt:
            use = session.ledger.use()
            clean = not use.vram.used_bytes and not use.ram.used_bytes and (nothing_left(pack) or "dead" in what)
            code = 130 if clean else 2
            with open("/proc/self/schedstat", encoding="ascii") as file:
                tell.send((time.monotonic(), int(file.read().split()[1]) / 1e9))
    sys.exit(code)
