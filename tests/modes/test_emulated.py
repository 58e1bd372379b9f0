"""A run under a control group and beside a ballast: the oracle's tokens, recorded as what it is; and Ctrl-C ends parent and child."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strata_recipes.machine.cgroup import groups
from strata_recipes.machine.limited import limited
from strata_recipes.units import GiB

REPOSITORY = Path(__file__).parents[2]
CAN_LIMIT = sys.platform == "linux" and os.geteuid() == 0 and any(os.access(g.folder, os.W_OK) for g in groups(Path("/"), "memory"))
pytestmark = pytest.mark.skipif(not CAN_LIMIT, reason="needs root and a writable memory control group")


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first run builds it, for the others."""
    return tmp_path_factory.mktemp("emulated") / "pack"


LEFT = 2 * GiB


def command(ram: str, tmp_path: Path, pack: Path, *more: str) -> list[str]:
    return [
        sys.executable, "run.py", f"emulate.ram={ram}", f"hardware.available={LEFT}", "model.scale_of=null", "decode.max_new_tokens=4",
        f"results.root={tmp_path}", f"model.pack={pack}", *more,
    ]  # fmt: skip


def folder(tmp_path: Path) -> dict[str, Any]:
    (only,) = (tmp_path / "run").iterdir()
    return {path.name: json.loads(path.read_text()) for path in only.glob("*.json")}


@pytest.mark.parametrize(("ram", "said"), [("cgroup", "ram: a control group leaves 2.00 GiB"), ("ballast", "ram: a locked ballast leaves")])
def test_the_oracles_tokens_and_a_record_of_how(ram: str, said: str, tmp_path: Path, pack: Path) -> None:
    with limited(LEFT + GiB) as group:  # of which the ballast takes what the run leaves: what other processes take meanwhile is not in it
        words = command(ram, tmp_path, pack)
        words = group.command(words) if ram == "ballast" else words
        done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    emulated = folder(tmp_path)
    with np.load(REPOSITORY / "tests" / "data" / "oracle" / "storyteller.p1.npz") as oracle:
        tokens = oracle["tokens"][:4].astype("<i4").tobytes()
    assert emulated["identity.json"]["tokens_md5"] == hashlib.md5(tokens).hexdigest()
    assert any(line.startswith(said) for line in emulated["metrics.json"]["emulated"]["by"])
    lowest = emulated["metrics.json"]["memory"]["lowest_available_bytes"]
    assert 0 < lowest < (LEFT if ram == "cgroup" else 1.05 * LEFT)
    assert emulated["status.json"]["state"] == "done"


def test_a_refusal_inside_has_its_exit_code_and_one_line(tmp_path: Path, pack: Path) -> None:
    done = subprocess.run(
        command("cgroup", tmp_path, pack, "workload.tokens=9000", "workload=synthetic"), cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 2 and "9,000" in done.stderr.splitlines()[-1]


def test_sigterm_ends_parent_and_child(tmp_path: Path, pack: Path) -> None:
    """As Ctrl-C: the child has a session of its own, so only its parent can end it."""
    parent = subprocess.Popen(
        command("cgroup", tmp_path, pack, "decode.max_new_tokens=4000", "decode.stop_at_eos=false"),
        cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert parent.stdout is not None
    assert parent.stdout.read(1), parent.communicate()[1]  # the reply has begun
    parent.send_signal(signal.SIGTERM)
    _, errors = parent.communicate(timeout=60)
    assert parent.returncode == 130 and "interrupted" in errors.splitlines()[-1]
    assert folder(tmp_path)["status.json"]["state"] == "stopped"  # recorded by the child, which is killed if it takes over 2 seconds
