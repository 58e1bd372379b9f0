"""The ballast process: what it holds, leaves and refuses, and that it never outlives its starter. Real processes and pages."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from strata_recipes.errors import DeviceError
from strata_recipes.machine import ballast, ballast_holder
from strata_recipes.machine.ballast import Ballast, leaving, locked
from strata_recipes.machine.cgroup import groups
from strata_recipes.machine.limited import limited
from strata_recipes.units import MiB

if sys.platform == "win32":
    pytest.skip("tests/windows has these", allow_module_level=True)

CAP_IPC_LOCK = 14
CAPABILITIES = int(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff")).split()[1], 16)
can_lock = pytest.mark.skipif(not CAPABILITIES >> CAP_IPC_LOCK & 1, reason="locking this much needs CAP_IPC_LOCK")
can_limit = pytest.mark.skipif(
    os.geteuid() != 0 or not any(os.access(group.folder, os.W_OK) for group in groups(Path("/"), "memory")),
    reason="needs root and a writable memory control group",
)
REPOSITORY = Path(__file__).parents[2]


def status_kib(pid: int, key: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(key + ":")))


def gone(pid: int) -> bool:
    """Ended, whether or not somebody has asked for its exit code; waits for it, since giving memory back takes time."""
    for _ in range(30_000):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


@can_lock
def test_it_holds_what_it_is_told_in_locked_pages() -> None:
    with locked(200 * MiB) as held:
        pid = held.process.pid
        assert held.held_bytes == 200 * MiB
        assert 200 * 1024 <= status_kib(pid, "VmLck") < 201 * 1024
        assert status_kib(pid, "VmRSS") >= 200 * 1024
        held.hold(70 * MiB)
        assert (held.held_bytes, status_kib(pid, "VmLck")) == (70 * MiB, 70 * 1024)
        held.hold(150 * MiB)
        assert status_kib(pid, "VmLck") == 150 * 1024
    assert gone(pid) and held.process.returncode == 0


@can_lock
@can_limit
def test_it_leaves_what_is_asked_in_a_group() -> None:
    with limited(512 * MiB) as group:
        with leaving(200 * MiB, group) as held:
            assert group.processes() == [held.process.pid]
            assert abs(group.available_bytes() - 200 * MiB) <= 16 * MiB
            assert 250 * MiB < held.held_bytes < 320 * MiB
        assert group.available_bytes() > 480 * MiB


@can_lock
@can_limit
def test_refusals_name_both_numbers() -> None:
    with limited(128 * MiB) as group:
        with (
            pytest.raises(DeviceError, match=r"a ballast of 0\.49 GiB cannot be locked: 0\.12 GiB is available here"),
            locked(500 * MiB, group),
        ):
            pass
        with (
            pytest.raises(DeviceError, match=r"0\.49 GiB cannot be left available: 0\.12 GiB is available here"),
            leaving(500 * MiB, group),
        ):
            pass
        assert group.processes() == []


@can_lock
@can_limit
def test_a_ballast_that_the_system_kills_is_told() -> None:
    with limited(128 * MiB) as group:
        held = Ballast(group)
        with pytest.raises(DeviceError, match=r"the ballast process of 0\.39 GiB ended by itself \(signal 9\)"):
            held.hold(400 * MiB)
        with pytest.raises(DeviceError, match="ended by itself"):
            held.hold(1 * MiB)
        held.close()


@can_lock
def test_a_run_whose_ballast_went_missing_does_not_pass() -> None:
    with pytest.raises(DeviceError, match=r"the ballast process of 16\.00 MiB ended by itself \(signal 9\)"), locked(16 * MiB) as held:
        held.process.kill()
        held.process.wait()


@can_lock
def test_an_error_of_the_run_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), locked(16 * MiB) as held:
        held.process.kill()
        1 / 0  # noqa: B018
    assert gone(held.process.pid)


@can_lock
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_dies_with_its_starter_even_while_locking(how: signal.Signals) -> None:
    script = (
        "import threading, time; from strata_recipes.machine.ballast import Ballast; held = Ballast(); held.hold(16 << 20)\n"
        "threading.Thread(target=held.hold, args=(2 << 30,)).start(); print(held.process.pid, flush=True); time.sleep(1000)"
    )
    starter = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert starter.stdout
    pid = int(starter.stdout.readline())
    assert Path(f"/proc/{pid}").exists()
    starter.send_signal(how)
    starter.wait()
    starter.stdout.close()
    assert gone(pid)


@can_lock
def test_ctrl_c_is_the_starters() -> None:
    with locked(16 * MiB) as held:
        held.process.send_signal(signal.SIGINT)
        held.hold(32 * MiB)
        assert held.process.poll() is None and held.held_bytes == 32 * MiB


@can_lock
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv to give up the right to lock")
def test_the_lock_limit_is_told_with_what_was_locked() -> None:
    script = "from strata_recipes.machine.ballast import locked\nwith locked(256 << 20): print('locked')"
    limit = 4 * MiB  # lowering it is always allowed
    done = subprocess.run(
        ["prlimit", f"--memlock={limit}:{limit}", "setpriv", "--bounding-set=-ipc_lock", sys.executable, "-c", script],
        capture_output=True, text=True, cwd=REPOSITORY,
    )  # fmt: skip
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[-1].endswith(
        "a ballast of 0.25 GiB got 0 B locked ([Errno 12] Cannot allocate memory); "
        "`ulimit -l` allows 4.00 MiB to all but root: state less, or take emulate.ram=ledger"
    )


def test_the_holder_needs_no_package() -> None:
    """It starts with -S: its own size must not count much, and it must start where our Python has nothing installed."""
    imported = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", "-c", ballast._START, str(REPOSITORY)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = {line.rpartition("|")[2].strip() for line in imported.stderr.splitlines()}
    assert "strata_recipes.machine.ballast_holder" in names
    assert not names & {"numpy", "torch", "omegaconf", "psutil"}
    assert ballast_holder.SLICE_BYTES == 64 * MiB
