"""Memory on Windows: its facts, locking and trimming, and the ballast process. Run by run.sh under Wine."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows", allow_module_level=True)

import psutil

from strata_recipes.errors import DeviceError
from strata_recipes.machine import memory, windows_memory
from strata_recipes.machine.ballast import Ballast, leaving, locked
from strata_recipes.machine.limited import limited
from strata_recipes.units import GiB, MiB


def gone(pid: int) -> bool:
    for _ in range(30_000):
        if not psutil.pid_exists(pid):
            return True
        time.sleep(0.01)
    return False


def agree() -> bool:
    """Our figures, psutil's and each other; False too where another program took or gave back a GiB between two looks."""
    status, told, found = memory.windows_status(), psutil.virtual_memory(), memory.available()
    least = min(status.ullAvailPhys, status.ullAvailPageFile)
    return abs(status.ullAvailPhys - told.available) < GiB and abs(found.num_bytes - least) < GiB


def test_memory_facts_agree_with_psutil() -> None:
    status, total = memory.windows_status(), psutil.virtual_memory().total
    assert memory.total() == total
    assert 0 < status.ullAvailPageFile <= status.ullTotalPageFile >= total
    assert memory.available().limited_by in ("free RAM", "commit limit")
    assert any(agree() for _ in range(20))


def test_locking_trimming_and_unlocking() -> None:
    address = windows_memory.allocate(4 * MiB)
    assert address % 65_536 == 0
    windows_memory.allow_locked(4 * MiB)
    windows_memory.lock(address, 4 * MiB)
    ctypes.memset(address, 7, 4 * MiB)
    windows_memory.unlock(address, 4 * MiB)
    windows_memory.trim_working_set()
    assert ctypes.string_at(address, 4 * MiB) == b"\7" * 4 * MiB
    windows_memory.release(address)


def test_a_refused_call_has_windows_code() -> None:
    with pytest.raises(OSError) as caught:
        windows_memory.release(0x10)
    assert caught.value.winerror


def test_the_ballast_holds_and_ends() -> None:
    with locked(96 * MiB) as held:
        assert held.held_bytes == 96 * MiB
        held.hold(64 * MiB)
        assert held.held_bytes == 64 * MiB and held.process.poll() is None
    assert held.process.returncode == 0


def test_a_ballast_that_ended_is_told() -> None:
    with pytest.raises(DeviceError, match=r"ended by itself \(exit code"), locked(16 * MiB) as held:
        held.process.kill()
        held.process.wait()


def test_refusals_name_both_numbers() -> None:
    with pytest.raises(DeviceError, match=r"a ballast of 1,048,576\.00 GiB cannot be locked: .* GiB is available here"), locked(1 << 50):
        pass
    with pytest.raises(DeviceError, match=r"1,048,576\.00 GiB cannot be left available"), leaving(1 << 50):
        pass
    with pytest.raises(DeviceError, match=r"control groups are Linux's, this is win32: take emulate\.ram=ballast or ledger"), limited(MiB):
        pass


def test_the_ballast_dies_with_its_starter() -> None:
    script = (
        "import time; from strata_recipes.machine.ballast import Ballast; held = Ballast(); held.hold(16 << 20)\n"
        "print(held.process.pid, flush=True); time.sleep(1000)"
    )
    pipe = subprocess.PIPE
    starter = subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert starter.stdout
    pid = int(starter.stdout.readline())
    assert psutil.pid_exists(pid)
    starter.kill()
    starter.communicate()
    assert gone(pid)


def test_a_ballast_closes_twice() -> None:
    held = Ballast()
    held.close()
    held.close()
