"""The simulator's blocks of threads that take turns: barriers and shuffles keep their order, and a thread that fails ends the block."""

from __future__ import annotations

import numpy as np
import pytest
from numba import float32

from kernels_numba.device import SIMULATED, Kernel, address, cuda, to_device
from kernels_numba.ptx import add, as_float, as_word, load_float, shuffle_xor, store_float

pytestmark = pytest.mark.skipif(not SIMULATED, reason="of the simulator")
THREADS = 64


@pytest.mark.parametrize("step", [1, -1])
def test_a_thread_reads_what_another_wrote_before_the_barrier(step: int) -> None:
    def turn_around(x, out):  # type: ignore[no-untyped-def]
        shared = cuda.shared.array(THREADS, float32)
        thread, first = np.int32(cuda.threadIdx.x), np.int64(cuda.blockIdx.x) * THREADS
        shared[thread] = load_float(x + (first + thread) * 4)
        for _ in range(3):
            cuda.syncthreads()
            value = shared[(thread + step) % THREADS]
            cuda.syncthreads()
            shared[thread] = value
        store_float(out + (first + thread) * 4, shared[thread])

    x = np.arange(2 * THREADS, dtype=np.float32).reshape(2, THREADS)
    assert (run(turn_around, x) == np.roll(x, -3 * step, axis=1)).all()


@pytest.mark.parametrize("step", [1, -1])
def test_a_barrier_that_is_missing_shows(step: int) -> None:
    """In one of two blocks: their threads go in opposite orders."""

    def read_at_once(x, out):  # type: ignore[no-untyped-def]
        shared = cuda.shared.array(THREADS, float32)
        thread, first = np.int32(cuda.threadIdx.x), np.int64(cuda.blockIdx.x) * THREADS
        shared[thread] = np.float32(-1)
        cuda.syncthreads()
        shared[thread] = load_float(x + (first + thread) * 4)
        store_float(out + (first + thread) * 4, shared[min(max(thread + step, 0), THREADS - 1)])

    x = np.arange(2 * THREADS, dtype=np.float32).reshape(2, THREADS)
    right = run(read_at_once, x) == x[:, np.clip(np.arange(THREADS) + step, 0, THREADS - 1)]
    assert sorted(right.all(axis=1).tolist()) == [False, True]


def test_shuffles_one_after_another_are_of_the_same_warp() -> None:
    def sum_lanes(x, out):  # type: ignore[no-untyped-def]
        thread = np.int32(cuda.threadIdx.x)
        value = load_float(x + thread * 4)
        for mask in (16, 8, 4, 2, 1):
            value = add(value, as_float(shuffle_xor(as_word(value), mask)))
        store_float(out + thread * 4, value)

    x = np.random.default_rng(1).integers(0, 1000, (1, THREADS)).astype(np.float32)
    assert (run(sum_lanes, x).reshape(2, 32) == x.reshape(2, 32).sum(1, keepdims=True)).all()


def test_a_thread_that_fails_ends_the_block() -> None:
    def fail_one(x, out):  # type: ignore[no-untyped-def]
        if cuda.threadIdx.x == 5:
            raise KeyError("thread 5 alone")
        cuda.syncthreads()

    with pytest.raises(KeyError, match="thread 5 alone"):
        run(fail_one, np.zeros((1, THREADS), np.float32))


def run(body: object, x: np.ndarray) -> np.ndarray:
    """One block a row."""
    source, out = to_device(x), to_device(np.full(x.shape, np.nan, np.float32))
    places = address("x", source, "float32", x.shape), address("out", out, "float32", x.shape)
    Kernel(body, "i64 i64", THREADS).launch(len(x), 0, *places)  # type: ignore[arg-type]
    return out
