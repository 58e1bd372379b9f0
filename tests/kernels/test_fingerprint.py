"""A kernel's hash changes with all that its machine code hangs on, and with nothing else."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import types

import kernels_numba.ptx
from kernels_numba import device
from kernels_numba.device import Kernel, cuda, inline
from kernels_numba.endings import Columns, Ending, Gates, Mixed
from kernels_numba.fingerprint import fingerprint
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.attention_part import part_kernel
from kernels_numba.gpu.dense_matvec import dense_kernel
from kernels_numba.gpu.dequantize import parts_kernel
from kernels_numba.gpu.endings import apart, finish
from kernels_numba.gpu.float_products import float_cut
from kernels_numba.gpu.grouped_f32 import f32_kernel
from kernels_numba.gpu.grouped_mma import mma_kernel
from kernels_numba.gpu.kv_store import store_kernel
from kernels_numba.gpu.matvec import matvec_kernel
from kernels_numba.gpu.matvec_q8 import fitting, matvec_q8_kernel
from kernels_numba.gpu.teams import Stored, cut
from kernels_numba.ptx import add as add_rounded
from kernels_numba.ptx import fused, multiply, store_float

ROOT = Path(__file__).resolve().parents[2]
STEP = 3


def made(step: Any = 2, add: Callable[..., Any] | None = None, default: int = 1) -> Kernel:
    def body(out: Any, count: int = default) -> None:
        store_float(out, np.float32(step) if add is None else add(STEP, count))

    return Kernel(body, "i64 i32", 32)


def test_the_same_kernel_made_twice_has_one_hash() -> None:
    assert fingerprint(made()) == fingerprint(made())


@pytest.mark.parametrize(
    "other",
    [
        made(3), made(2.0), made(np.float32(2)), made(np.arange(3)), made((2,)), made({2: 1}), made(default=2), made(add=max),
        replace(made(), threads=64), replace(made(), parameters="i64 i64"), replace(made(), blocks_a_multiprocessor=2),
    ],
)  # fmt: skip
def test_any_part_changes_it(other: Kernel) -> None:
    assert fingerprint(other) != fingerprint(made())


def test_a_device_functions_code_and_closure_and_an_intrinsics_count() -> None:
    def adding(step: int) -> Any:
        return inline(lambda a, b: a + b + step)

    subtracting = inline(lambda a, b: a - b)
    hashes = {fingerprint(made(add=one)) for one in (adding(1), adding(2), subtracting, fused, add_rounded, multiply)}
    assert len(hashes) == 6
    assert fingerprint(made(add=adding(1))) == fingerprint(made(add=adding(1)))


def test_how_a_device_function_is_compiled_counts() -> None:
    def add(a: Any, b: Any) -> Any:
        return a + b

    ways = (inline(add), cuda.jit(device=True)(add), cuda.jit(device=True, fastmath=True)(add))
    assert len({fingerprint(made(add=one)) for one in ways}) == 3
    assert fingerprint(made(add=inline(add))) == fingerprint(made(add=ways[0]))


def test_a_wrapper_counts_with_what_it_wraps() -> None:
    def adding(step: int) -> Any:
        return functools.wraps(max)(lambda a, b: a + b + step)

    assert fingerprint(made(add=adding(1))) != fingerprint(made(add=adding(2)))
    assert fingerprint(made(add=adding(1))) == fingerprint(made(add=adding(1)))


def test_how_arguments_are_taken_counts() -> None:
    code = ("def f(a): return a", "def f(*a): return a", "def f(*, a=1): return a", "def f(*, a=2): return a")
    found: list[dict[str, Any]] = [{}, {}, {}, {}]
    for line, names in zip(code, found, strict=True):
        exec(line, names)
    assert len({fingerprint(names["f"]) for names in found}) == 4


def test_how_kernels_are_compiled_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "check_device", lambda: "a GPU")
    before = device._key(made())
    monkeypatch.setattr(device, "_jitted", lambda kernel: cuda.jit(kernel.signature, fastmath=True)(kernel.body))
    assert device._key(made()) != before
    monkeypatch.undo()
    monkeypatch.setattr(device, "check_device", lambda: "a GPU")
    monkeypatch.setitem(device._SCALARS, "i32", types.uint32)
    assert device._key(made()) != before


def test_a_global_that_the_body_reads_counts() -> None:
    code = "from tests.kernels import test_fingerprint as t; t.STEP = {}; " + HASHES.replace("HASHED", "t.made()")
    told = [in_a_new_process(code.format(step)) for step in (3, 4, 3)]
    assert told[0] == told[2] != told[1]


def test_processes_agree_whatever_their_hash_seed() -> None:
    kernels = "part_kernel(4, 128, 'int8', 16, True), store_kernel('q4_0', 128, False)"
    code = "from kernels_numba.gpu.attention_part import part_kernel; from kernels_numba.gpu.kv_store import store_kernel; "
    told = {in_a_new_process(code + HASHES.replace("HASHED", kernels), seed) for seed in ("1", "2")}
    assert told == {fingerprint(part_kernel(4, 128, "int8", 16, True), store_kernel("q4_0", 128, False))}


def test_what_cannot_be_told_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"a kernel reaches <object object at .*>, of which no fingerprint can be made"):
        fingerprint(made(object()))
    with pytest.raises(TypeError, match="a kernel reaches <enum 'Step'>"):  # its values could change without its name
        fingerprint(made(IntEnum("Step", "ONE")))
    with pytest.raises(TypeError, match=r"module 'kernels_numba\.ptx'"):
        fingerprint(kernels_numba.ptx)


HASHES = "from kernels_numba.fingerprint import fingerprint; print(fingerprint(HASHED))"


def in_a_new_process(code: str, seed: str = "0") -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_formats_kernels_have_one_each(name: str) -> None:
    """The other kernels know no format; tests/kernels/test_ptx.py asks each of them when it reads their text."""
    form, width = FORMATS[name], 2560
    found = []
    for planar, alignment in ((False, 2), (True, 16)):  # plain blocks at odd places, planar ones at even ones
        stored = Stored(1, width, form.row_bytes(width), width // form.block_values, planar)
        found += [parts_kernel(name, output, planar, alignment) for output in ("f32", "bf16", "f16")]
        found += [matvec_kernel(name, 640, width, float_cut(width, 640), rows, planar, alignment) for rows in (1, 8)]
        found += [dense_kernel(name, width, cut(width // 8, 640), rows, stored) for rows in (1, 8)]
        found += [f32_kernel((name,), 640, width, planar, (alignment,))]
        found += [mma_kernel((name, name), 640, width, compute, planar, (alignment, alignment)) for compute in ("bf16", "f16")]
        if name not in ("F32", "F16", "BF16"):
            found += [matvec_q8_kernel(name, fitting(name, 640, width, planar, rows, 10), planar, alignment) for rows in (1, 8)]
    assert len({fingerprint(kernel) for kernel in found}) == len(set(found))


def test_every_ending_has_a_kernel_of_its_own_and_equal_ones_share_it() -> None:
    x, stored = {n: np.empty((1, n), np.float32) for n in (3, 4, 10, 20, 35, 36, 37, 40)}, Stored(1, 320, 340, 10, False)
    endings = [
        Columns(x[40]),
        Gates(x[36], x[4], 4),
        Gates(x[35], x[4], 4),
        Gates(x[37], x[3], 3),
        Mixed(x[40], x[10]),
        Mixed(x[40], x[20]),
    ]

    def kernel_of(to: Ending) -> Kernel:
        return dense_kernel("Q8_0", 320, apart(to, float_cut(320, 40)), 1, stored, finish(to))

    assert len({fingerprint(kernel_of(to)) for to in endings}) == len(endings)
    assert all(kernel_of(replace(to)) is kernel_of(to) for to in endings)
