"""Ctrl-C and SIGTERM, once and twice, at any moment: exit code 130, one line, no orphan, nothing half-done that counts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strata_recipes.modes.interrupt import Interrupt, interrupted
from tests.end_to_end.conftest import ROOT
from tests.faults.conftest import Packed

# The program itself, held at one moment: it tells the test, which then sends its signals.
CHILD = """
import os, sys, time

def at(owner, name, when=lambda *args: True):
    plain = getattr(owner, name)
    def patched(*args, **more):
        if when(*args):
            os.write(pipe, b"now\\n")
            for _ in range(1200):
                time.sleep(0.05)  # a signal just before one long sleep would not end it
        return plain(*args, **more)
    setattr(owner, name, patched)

pipe, moment, words = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
from strata_recipes.pack.output_file import OutputFile
if moment == "first byte of a pack":
    at(OutputFile, "write")
if moment == "amid a pack":
    at(OutputFile, "write", lambda file, data: file.written > 100_000)
if moment == "before the manifest":
    at(OutputFile, "commit", lambda file: file.path.name == "pack.json")
if moment == "reply":
    from strata_recipes.modes.reply import Reply
    at(Reply, "push")
from strata_recipes.modes.entry import process
sys.argv = ["run.py", *words]
process()
"""
MOMENTS = ["first byte of a pack", "amid a pack", "before the manifest", "reply"]
INT, TERM = signal.SIGINT, signal.SIGTERM


@pytest.mark.parametrize(
    ("moment", "signals"),
    [(moment, [TERM, TERM] if number % 2 else [INT, INT]) for number, moment in enumerate(MOMENTS)] + [("amid a pack", [INT, TERM])],
)
def test_it_ends_once_and_clean(moment: str, signals: list[signal.Signals], tiny: Packed, ids_file: Path, tmp_path: Path) -> None:
    pack, results = tmp_path / "pack", tmp_path / "results"
    packing = "pack" in moment or "manifest" in moment
    words = [
        "model=gguf",
        f"model.source={tiny.made.path}",
        f"results.root={results}",
        "hardware=cpu",
        f"workload.token_ids_file={ids_file}",
    ]
    words += (
        ["mode=pack", f"model.pack={pack}"] if packing else [f"model.pack={tiny.folder}", "startup=mapped", "hardware.drive.direct=1GB/s"]
    )
    told, tell = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tell), moment, *words],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=(tell,), start_new_session=True,
    )  # fmt: skip
    try:
        os.close(tell)
        assert os.read(told, 4) == b"now\n", child.communicate()[1]
        for number in signals:
            child.send_signal(number)
        _, errors = child.communicate(timeout=30)
    finally:
        os.close(told)
        if child.poll() is None:
            child.kill()
    assert child.returncode == 130 and "Traceback" not in errors, errors
    assert errors.strip().splitlines()[-1].startswith("strata: interrupted")
    with pytest.raises(ProcessLookupError):
        os.killpg(child.pid, 0)
    assert not list(pack.glob("*.tmp")) and not (pack / "pack.json").exists()
    for status in results.glob("*/*/status.json"):
        assert json.loads(status.read_text())["state"] == "stopped"


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (INT, TERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_second_signal_waits_until_the_first_had_its_time(handlers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends children and closes files is not broken off; but a run that hangs there can be ended. nohup is respected."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    Interrupt().install()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN and not interrupted()
    for at, number, raised in [(100.0, TERM, True), (100.5, INT, False), (101.9, TERM, False), (102.1, INT, True)]:
        now[0] = at
        if raised:
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
        else:
            signal.raise_signal(number)
        assert interrupted()
