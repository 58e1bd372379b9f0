"""Ctrl-C and SIGTERM, once and twice, at any moment: exit code 130, one line, no orphan, nothing half-done that counts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

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
if moment in ("start", "prompt", "reply"):
    from strata_recipes.engine import prefill, startup
    from strata_recipes.modes.reply import Reply
    at(*{"start": (startup, "process_use"), "prompt": (prefill, "process_use"), "reply": (Reply, "push")}[moment])
from strata_recipes.modes.entry import process
sys.argv = ["run.py", *words]
process()
"""
MOMENTS = ["first byte of a pack", "amid a pack", "before the manifest", "start", "prompt", "reply"]
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


def test_a_closed_terminal_ends_the_run_under_a_limit_and_its_child(tiny: Packed, ids_file: Path, tmp_path: Path) -> None:
    """The child has a session of its own: only the parent can end it."""
    words = ["model=gguf", f"model.source={tiny.made.path}", f"model.pack={tiny.folder}", f"workload.token_ids_file={ids_file}"]
    words += [f"results.root={tmp_path}", "hardware=rtx3060_6gb", "hardware.gpu.vram=0", "hardware.ram=1GiB", "hardware.available=1GiB"]
    words += ["hardware.headroom=0", "emulate.ram=cgroup", "decode.max_new_tokens=450", "decode.stop_at_eos=false"]
    parent = subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    if not parent.stdout.read(1):
        errors = parent.communicate()[1]
        if "control group" in errors or "cgroup" in errors:
            pytest.skip("needs the right to make a control group")
        pytest.fail(errors)
    children = psutil.Process(parent.pid).children(recursive=True)
    parent.send_signal(signal.SIGHUP)
    _, errors = parent.communicate(timeout=60)
    assert parent.returncode == 130, errors
    assert children and not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
