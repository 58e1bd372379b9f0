"""The CPU kernels against the numpy truth, bit by bit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernels_numba import reference
from kernels_numba.cpu.dequantize import dequantize
from kernels_numba.formats import FORMATS
from tests.kernels.blocks import random_blocks


@pytest.mark.parametrize("count", [1, 9, 1000])
@pytest.mark.parametrize("name", list(FORMATS))
def test_equals_the_reference_bit_by_bit(name: str, count: int) -> None:
    data = random_blocks(name, count, seed=count)
    out = np.full(count * FORMATS[name].block_values, np.nan, np.float32)
    dequantize(data, name, out)
    assert (out.view(np.uint32) == reference.dequantize(data, name).view(np.uint32)).all()


@pytest.mark.parametrize("name", ["F16", "BF16", "Q2_0", "IQ4_XS"])
def test_starts_at_any_byte(name: str) -> None:
    data = random_blocks(name, 16, seed=3)
    moved = np.concatenate([np.zeros(1, np.uint8), data])[1:]
    out = np.empty(16 * FORMATS[name].block_values, np.float32)
    dequantize(moved, name, out)
    assert (out.view(np.uint32) == reference.dequantize(data, name).view(np.uint32)).all()


@pytest.mark.parametrize("name", list(FORMATS))
def test_no_blocks_is_no_launch(name: str) -> None:
    dequantize(np.empty(0, np.uint8), name, np.empty(0, np.float32))


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="not whole Q2_0 blocks of 18 bytes"):
        dequantize(np.zeros(17, np.uint8), "Q2_0", np.empty(64, np.float32))
    with pytest.raises(ValueError, match="does not hold 64 float32 values"):
        dequantize(np.zeros(18, np.uint8), "Q2_0", np.empty(63, np.float32))
    with pytest.raises(ValueError, match="not whole Q2_0 blocks"):
        dequantize(np.zeros(36, np.uint8)[::2], "Q2_0", np.empty(64, np.float32))


def test_works_where_no_cache_can_be_written(tmp_path: Path) -> None:
    """Neither beside the module nor at home: the kernel compiles for the process alone."""
    copy = tmp_path / "kernels_numba"
    shutil.copytree(Path(reference.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "cpu" / "__pycache__").touch()  # a file where the folder would be: no one can write into it, root neither
    code = (
        "import numpy as np; from kernels_numba.cpu.dequantize import dequantize\n"
        "out = np.empty(64, np.float32); dequantize(np.full(18, 0x38, np.uint8), 'Q2_0', out); print(out[:4].tolist())"
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA", "XDG"))} | {"HOME": "/dev/null"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    scale = float(np.array([0x38, 0x38], np.uint8).view(np.float16)[0])
    assert done.stdout.strip() == str([-scale, scale, 2 * scale, -scale])  # 0x38: codes 0, 2, 3, 0
