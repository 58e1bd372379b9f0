"""Ctrl-C and SIGTERM, once and twice, at any moment: exit code 130, one line, no orphan, nothing half-done that counts."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from strata_recipes.modes.interrupt import Interrupt, interrupted
from tests.faults.conftest import Packed
from tests.faults.signalled import main
from tests.forks import FORKS, next_word

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
    told, tell = FORKS.Pipe(duplex=False)
    child = FORKS.Process(target=main, args=(moment, words, tell, tmp_path / "errors"))
    child.start()
    tell.close()
    try:
        assert next_word(told) == "now", (tmp_path / "errors").read_text()
        assert child.pid is not None
        for number in signals:
            os.kill(child.pid, number)
        child.join(300)
    finally:
        child.kill()
        child.join()
    errors = (tmp_path / "errors").read_text()
    assert child.exitcode == 130 and "Traceback" not in errors, errors
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
