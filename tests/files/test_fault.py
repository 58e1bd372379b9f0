"""A fault in a mapping ends a real process with exit code 3 and one sentence; a foreign one keeps its signal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SIZE = 1 << 20
PRELUDE = """
import faulthandler, mmap, os, sys, threading
import numpy as np
from pathlib import Path
from strata_recipes.files.mapped import MappedFile
path = Path(sys.argv[1])
file = MappedFile(path, 1 << 20)
"""


def run(body: str, path: Path) -> subprocess.CompletedProcess[str]:
    path.write_bytes(b"x" * SIZE)
    repository = Path(__file__).parents[2]
    command = [sys.executable, "-c", PRELUDE + body, str(path)]
    return subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=300)


def test_a_file_cut_under_a_view(tmp_path: Path) -> None:
    done = run("view = file.view(0, 1 << 20); os.truncate(path, 0); view[1 << 19]", tmp_path / "experts.bin")
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        f"{tmp_path / 'experts.bin'}: a read of its mapping failed, the file was cut or its drive has an error: "
        "check the file, then start again"
    ]


def test_a_fault_in_a_thread_while_another_holds_the_interpreter(tmp_path: Path) -> None:
    """The faulting thread must not need the lock that the joining one may hold."""
    body = """
import numba
@numba.njit(parallel=True)
def total(values):
    found = 0
    for i in numba.prange(values.size):
        found += values[i]
    return found
view = file.view(0, 1 << 20)
print(total(view), flush=True)
os.truncate(path, 4096)
total(view)
"""
    done = run(body, tmp_path / "experts.bin")
    assert done.stdout.strip() == str(SIZE * ord("x"))
    assert done.returncode == 3 and "a read of its mapping failed" in done.stderr


def test_two_maps_name_the_right_file(tmp_path: Path) -> None:
    body = """
other = path.with_name("other.bin"); other.write_bytes(b"y" * 8192)
second = MappedFile(other, 8192)
view = second.view(0, 8192)
os.truncate(other, 0)
view[5000]
"""
    done = run(body, tmp_path / "experts.bin")
    assert done.returncode == 3 and "other.bin: a read of its mapping failed" in done.stderr


def test_a_foreign_fault_keeps_its_signal(tmp_path: Path) -> None:
    body = """
other = path.with_name("other.bin"); other.write_bytes(b"y" * 8192)
with open(other, "rb") as handle:
    foreign = mmap.mmap(handle.fileno(), 8192, access=mmap.ACCESS_READ)
os.truncate(other, 0)
foreign[5000]
"""
    done = run(body, tmp_path / "experts.bin")
    assert done.returncode == -7 and "mapping failed" not in done.stderr


def test_after_close_the_former_handler_is_back(tmp_path: Path) -> None:
    body = """
faulthandler.enable()
again = MappedFile(path, 1 << 20); again.close()
view = file.view(0, 1 << 20)
file.close()
os.truncate(path, 0)
view[1 << 19]
"""
    done = run(body, tmp_path / "experts.bin")
    assert done.returncode == -7
