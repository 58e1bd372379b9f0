"""A second process finds what the first one compiled, and its kernel gives the same values."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
import numpy as np
from kernels_numba import device
from kernels_numba.gpu.moe import silu_multiply
compile_now = device._compiled
def told(kernel):
    print("compiles", kernel.body.__name__)
    return compile_now(kernel)
device._compiled = told
gate, up = np.random.default_rng(1).standard_normal((2, 3, 64)).astype(np.float32)
out = device.to_device(np.zeros((3, 64), np.float32))
silu_multiply(device.to_device(gate), device.to_device(up), out)
print(device.to_host(out).tobytes().hex())
"""


@pytest.mark.gpu
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    first, second = run(tmp_path), run(tmp_path)
    assert first[0] == "compiles silu_values" and second == first[1:]
    (kept,) = (tmp_path / "strata_recipes" / "kernels").iterdir()
    kept.write_bytes(kept.read_bytes()[:-1])
    assert run(tmp_path) == first  # a damaged one is compiled again


def run(cache: Path) -> list[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "LOCALAPPDATA": str(cache)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split("\n")[:-1]
