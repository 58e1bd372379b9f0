"""A run under a control group and beside a ballast: the same tokens, recorded as what it is; and Ctrl-C ends parent and child."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from strata_recipes.machine.cgroup import groups
from strata_recipes.machine.memory import available
from strata_recipes.units import GiB

REPOSITORY = Path(__file__).parents[2]
CAN_LIMIT = sys.platform == "linux" and os.geteuid() == 0 and any(os.access(g.folder, os.W_OK) for g in groups(Path("/"), "memory"))
pytestmark = pytest.mark.skipif(not CAN_LIMIT, reason="needs root and a writable memory control group")


def command(ram: str, tmp_path: Path, *more: str) -> list[str]:
    left = {"cgroup": 2 * GiB, "ballast": available().num_bytes - GiB, "ledger": 2 * GiB}[ram]
    return [
        sys.executable, "run.py", f"emulate.ram={ram}", f"hardware.available={left}", "model.scale_of=null", "decode.max_new_tokens=4",
        f"results.root={tmp_path}", f"model.pack={tmp_path / 'pack'}", *more,
    ]  # fmt: skip


def folder(tmp_path: Path) -> dict[str, Any]:
    (only,) = (tmp_path / "run").iterdir()
    return {path.name: json.loads(path.read_text()) for path in only.glob("*.json")}


@pytest.mark.parametrize(("ram", "said"), [("cgroup", "ram: a control group leaves 2.00 GiB"), ("ballast", "ram: a locked ballast leaves")])
def test_the_same_tokens_and_a_record_of_how(ram: str, said: str, tmp_path: Path) -> None:
    found = {}
    for kind in (ram, "ledger"):
        done = subprocess.run(command(kind, tmp_path / kind), cwd=REPOSITORY, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found[kind] = folder(tmp_path / kind)
    emulated, plain = found[ram], found["ledger"]
    assert emulated["identity.json"]["tokens_md5"] == plain["identity.json"]["tokens_md5"]
    assert any(line.startswith(said) for line in emulated["metrics.json"]["emulated"]["by"])
    lowest = emulated["metrics.json"]["memory"]["lowest_available_bytes"]
    if ram == "cgroup":
        assert 0 < lowest < 2 * GiB
    assert emulated["status.json"]["state"] == "done"


def test_a_refusal_inside_has_its_exit_code_and_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        command("cgroup", tmp_path, "workload.tokens=9000", "workload=synthetic"), cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 2 and "9,000" in done.stderr.splitlines()[-1]


def test_sigterm_ends_parent_and_child(tmp_path: Path) -> None:
    """As Ctrl-C: the child has a session of its own, so only its parent can end it."""
    parent = subprocess.Popen(
        command("cgroup", tmp_path, "decode.max_new_tokens=4000", "decode.stop_at_eos=false"),
        cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert parent.stdout is not None
    assert parent.stdout.read(1), parent.communicate()[1]  # the reply has begun
    sent = time.monotonic()
    parent.send_signal(signal.SIGTERM)
    _, errors = parent.communicate(timeout=60)
    assert parent.returncode == 130 and "interrupted" in errors.splitlines()[-1]
    assert time.monotonic() - sent < 10  # of which the work's own end is held to 2 seconds elsewhere
    assert folder(tmp_path)["status.json"]["state"] == "stopped"
