"""Ctrl-C in a real process: KeyboardInterrupt reaches the top within 2 seconds, and nothing of ours is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
CHILD = """
import os, sys, threading, time
from pathlib import Path
from strata_recipes.config.choices import Strategy
from strata_recipes.config.schema import Startup
from strata_recipes.engine.session import Session
from strata_recipes.engine.watching import Hooks
from strata_recipes.pack.reader import open_pack
from tests.engine.plans import nothing_left, oracle, plan_for

what, plain, reads = sys.argv[2], os.preadv, []

def now():
    os.write(1, b"now\\n")  # in one piece: two reading threads may get here together
    for _ in range(600):
        time.sleep(0.05)  # a signal just before one long sleep would not end it

def progress(step):
    if what.removeprefix("unbuffered ") == f"{step.step} {100 * step.done_bytes // step.total_bytes // 10 * 10}":
        now()

def slow(handle, buffers, offset):
    reads.append(offset)
    if what == "late drive" and len(reads) == 9:
        os.write(1, b"now\\n")
    if what in ("dead drive", "unbuffered dead") and len(reads) >= 9:
        now()
    time.sleep(0.05 if what == "late drive" else 0)
    return plain(handle, buffers, offset)

os.preadv = slow
code = 1
with open_pack(Path(sys.argv[1])) as pack:
    direct = what.endswith("drive")
    startup = Startup(Strategy.unbuffered if "unbuffered" in what else Strategy.mapped, copy_batch=3, fill_batch=2)
    plan = plan_for(
        pack, mode="mapped" if direct else "resident", slots=10, file_io="direct" if direct else "buffered", chunk=1, startup=startup
    )
    session = Session(plan, pack, hooks=Hooks(progress=progress))
    try:
        with session:
            session.prompt(oracle("tiny-q2_0.greedy")["ids"], on_chunk=lambda done, total: what == "prompt" and done == 20 and now())
            session.generate(on_token=lambda token: what == "reply" and now())
    except KeyboardInterrupt:
        use = session.ledger.use()
        clean = not use.vram.used_bytes and not use.ram.used_bytes and (nothing_left(pack) or "dead" in what)
        code = 130 if clean else 2
        print(time.monotonic(), flush=True)
sys.exit(code)
"""


@pytest.mark.parametrize(
    "what",
    [
        "fill 10",
        "copy 0",
        "copy 90",
        "unbuffered fill 10",
        "unbuffered copy 0",
        "unbuffered copy 90",
        "unbuffered dead",
        "prompt",
        "late drive",
        "dead drive",
        "reply",
    ],
)
def test_ctrl_c(what: str, tiny_folder: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tiny_folder), what]
    child = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert child.stdout is not None and child.stderr is not None
        line = child.stdout.readline()
        assert line == "now\n", child.stderr.read()
        sent = time.monotonic()
        os.kill(child.pid, signal.SIGINT)
        code = child.wait(30)
        assert code == 130, child.stderr.read()
        assert float(child.stdout.read().splitlines()[-1]) - sent < 2  # all of the session closed; how fast Python itself ends is not ours
        with pytest.raises(ProcessLookupError):  # no process of its session is left
            os.killpg(child.pid, 0)
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()
