"""Ctrl-C in a real process: KeyboardInterrupt reaches the top within 2 seconds, and nothing of ours is left behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.engine.interrupted import main
from tests.forks import FORKS, next_word


def queued_s(pid: int) -> float:
    """How long a process's main thread was ready to run, and every core was busy with others."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


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
def test_ctrl_c(what: str, tiny_folder: Path, tmp_path: Path) -> None:
    told, tell = FORKS.Pipe(duplex=False)
    child = FORKS.Process(target=main, args=(what, tiny_folder, tell, tmp_path / "errors"))
    child.start()
    tell.close()
    try:
        assert next_word(told) == "now", (tmp_path / "errors").read_text()
        assert child.pid is not None
        sent, queued = time.monotonic(), queued_s(child.pid)
        os.kill(child.pid, signal.SIGINT)
        child.join(300)
        assert child.exitcode == 130, (tmp_path / "errors").read_text()
        ended, queued_then = next(said for said in iter(lambda: next_word(told), None) if said != "now")
        # all of the session closed; how fast Python itself ends is not ours, nor what a busy machine keeps it waiting for a core
        assert ended - sent - (queued_then - queued) < 2
        with pytest.raises(ProcessLookupError):  # no process of its session is left
            os.killpg(child.pid, 0)
    finally:
        child.kill()
        child.join()
