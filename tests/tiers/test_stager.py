"""The stager's contract: exact bytes, no buffer reused before its job is done, nothing read twice, nothing left behind."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata_recipes.errors import FileError
from strata_recipes.files.source import Bytes, Counters
from strata_recipes.tiers.stager import Job, Stager, State

SIZE = 64 * 4096


class SlowFile:
    """An ExpertFile over an array, with delays, failures, and a gate that holds reads under way."""

    path = Path("experts.bin")
    size = SIZE

    def __init__(self, seed: int = 0, fail: frozenset[int] = frozenset(), crash: int = -1, slowest_s: float = 0.002) -> None:
        self.data = np.random.default_rng(1).integers(0, 256, SIZE, dtype=np.uint8)
        self.counters = Counters()
        self.rng, self.fail, self.crash, self.slowest_s = np.random.default_rng(seed), fail, crash, slowest_s
        self.offsets: list[int] = []
        self.gate: threading.Event | None = None
        self.entered = threading.Semaphore(0)

    def read(self, offset: int, num_bytes: int, out: Bytes) -> None:
        with self.counters.reading(num_bytes):
            self.offsets.append(offset)
            self.entered.release()
            if self.gate:
                self.gate.wait(10)
            out[: num_bytes // 2] = self.data[offset : offset + num_bytes // 2]
            time.sleep(self.rng.random() * self.slowest_s)
            if offset in self.fail:
                raise FileError(f"offset {offset}: errno 5")
            if offset == self.crash:
                raise ZeroDivisionError
            out[num_bytes // 2 : num_bytes] = self.data[offset + num_bytes // 2 : offset + num_bytes]

    def check(self) -> None: ...

    def close(self) -> None: ...


def stager_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("stager-")]


@settings(max_examples=60, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 62), st.integers(1, 8192), st.sampled_from(["take", "skip early", "skip late", "fail"])), max_size=40
    ),
    buffers=st.integers(1, 16),
    threads=st.integers(1, 16),
    seed=st.integers(0, 99),
)
def test_exact_bytes_whatever_is_skipped_fails_or_is_late(jobs: list[tuple[int, int, str]], buffers: int, threads: int, seed: int) -> None:
    failing = frozenset(page * 4096 for page, _, what in jobs if what == "fail")
    file = SlowFile(seed, failing)
    stager = Stager(file, buffers, 8192, threads, poison=True)
    submitted = [(stager.submit(page * 4096, size), page * 4096, size, what) for page, size, what in jobs]
    for job, _, _, what in submitted[::-1]:
        if what == "skip early":
            stager.skip(job)
    for job, offset, size, what in submitted:
        if what.startswith("skip"):
            stager.skip(job)
        elif offset in failing:
            with pytest.raises(FileError, match=f"offset {offset}"):
                stager.take(job)
        else:
            view = stager.take(job)
            np.testing.assert_array_equal(view, file.data[offset : offset + size])
            stager.release(job)
            assert job.state is State.done
    stager.close()
    wanted = [offset for _, offset, _, what in submitted if not what.startswith("skip")]
    assert len(file.offsets) <= len(jobs)
    for offset in set(wanted):
        assert wanted.count(offset) <= file.offsets.count(offset)
    assert file.counters.in_flight == 0 and not stager_threads()


def test_a_taken_buffer_is_not_touched_until_release() -> None:
    file = SlowFile()
    stager = Stager(file, 2, 4096, 4, poison=True)
    jobs = [stager.submit(i * 4096, 4096) for i in range(6)]
    first, second = stager.take(jobs[0]), stager.take(jobs[1])
    time.sleep(0.05)  # time for a wrong stager to read on
    assert file.offsets == [0, 4096] or sorted(file.offsets) == [0, 4096]
    np.testing.assert_array_equal(first, file.data[:4096])
    stager.release(jobs[0])
    np.testing.assert_array_equal(stager.take(jobs[2]), file.data[8192:12288])
    np.testing.assert_array_equal(second, file.data[4096:8192])  # job 3 has not come in under it
    stager.close()


def test_a_released_buffer_is_poisoned() -> None:
    file = SlowFile()
    stager = Stager(file, 1, 4096, 1, poison=True)
    job = stager.submit(0, 4096)
    view = stager.take(job)
    stager.release(job)
    assert (view == 0xFF).all()
    stager.close()


def test_reads_reach_the_planned_depth() -> None:
    file = SlowFile()
    file.gate = threading.Event()
    stager = Stager(file, 4, 4096, 8)
    jobs = [stager.submit(i * 4096, 4096) for i in range(8)]
    for _ in range(4):
        assert file.entered.acquire(timeout=10)
    assert file.counters.in_flight == 4  # one a buffer, not one a thread
    file.gate.set()
    for job in jobs:
        stager.take(job)
        stager.release(job)
    assert file.counters.in_flight_peak == 4
    stager.close()


def test_jobs_finish_out_of_order_and_the_taker_gets_its_own() -> None:
    file = SlowFile()
    stager = Stager(file, 2, 4096, 2)
    jobs = [stager.submit(i * 4096, 4096) for i in range(2)]
    np.testing.assert_array_equal(stager.take(jobs[1]), file.data[4096:8192])
    np.testing.assert_array_equal(stager.take(jobs[0]), file.data[:4096])
    stager.close()


def test_skip_before_the_read_means_no_read() -> None:
    file = SlowFile()
    file.gate = threading.Event()
    stager = Stager(file, 1, 4096, 1)
    first, second, third = (stager.submit(i * 4096, 4096) for i in range(3))
    assert file.entered.acquire(timeout=10)
    stager.skip(second)  # still queued
    stager.skip(first)  # under way: its buffer passes on when it ends
    assert first.state is State.reading
    file.gate.set()
    np.testing.assert_array_equal(stager.take(third), file.data[8192:12288])
    assert first.state is second.state is State.done
    assert file.offsets == [0, 8192]
    for job in (first, second):
        with pytest.raises(RuntimeError, match="not after skip"):
            stager.take(job)
    stager.close()


def test_a_failed_job_leaves_its_range_as_never_asked_for() -> None:
    file = SlowFile(fail=frozenset([0]))
    stager = Stager(file, 1, 4096, 1)
    for _ in range(2):  # asking again reads again
        with pytest.raises(FileError):
            stager.take(stager.submit(0, 4096))
    file.fail = frozenset()
    np.testing.assert_array_equal(stager.take(stager.submit(0, 4096)), file.data[:4096])
    assert file.offsets == [0, 0, 0]
    stager.close()


def test_a_failed_read_that_was_skipped_is_nobodys_error() -> None:
    file = SlowFile(fail=frozenset([0]))
    stager = Stager(file, 1, 4096, 1)
    stager.skip(stager.submit(0, 4096))
    np.testing.assert_array_equal(stager.take(stager.submit(4096, 4096)), file.data[4096:8192])
    stager.close()


def test_an_exception_in_a_thread_stops_all_and_reaches_the_taker() -> None:
    file = SlowFile(crash=8192)
    stager = Stager(file, 4, 4096, 4)
    jobs = [stager.submit(i * 4096, 4096) for i in range(8)]
    with pytest.raises(ZeroDivisionError):
        for job in jobs:
            stager.take(job)
            stager.release(job)
    with pytest.raises(ZeroDivisionError):
        stager.submit(0, 4096)
    for thread in stager_threads():
        thread.join(10)
    assert not stager_threads()  # before close
    stager.close()


def test_waiting_for_a_job_behind_ones_own_is_refused() -> None:
    file = SlowFile()
    stager = Stager(file, 1, 4096, 1)
    first, second = stager.submit(0, 4096), stager.submit(4096, 4096)
    stager.take(first)
    with pytest.raises(RuntimeError, match="job 1 waits for job 0, which is taken"):
        stager.take(second)
    stager.close()


def test_close_cancels_what_is_queued() -> None:
    file = SlowFile(slowest_s=0.0)
    file.gate = threading.Event()
    stager = Stager(file, 2, 4096, 2)
    jobs: list[Job] = [stager.submit(0, 4096) for _ in range(60)]
    assert file.entered.acquire(timeout=10) and file.entered.acquire(timeout=10)
    threading.Timer(0.1, file.gate.set).start()
    stager.close()
    stager.close()
    assert len(file.offsets) == 2 and not stager_threads()
    with pytest.raises(RuntimeError, match="closed"):
        stager.submit(0, 4096)
    with pytest.raises(RuntimeError, match="closed"):
        stager.take(jobs[-1])


def test_a_read_that_hangs_does_not_hold_close() -> None:
    file = SlowFile()
    file.gate = threading.Event()
    stager = Stager(file, 1, 4096, 1)
    stager.submit(0, 4096)
    assert file.entered.acquire(timeout=10)
    stager.close()  # returns though the read has not
    (thread,) = stager_threads()
    assert thread.daemon  # nor would it hold the process
    file.gate.set()
    thread.join(10)
    assert not stager_threads()


@pytest.mark.parametrize(("buffers", "threads"), [(0, 1), (1, 0)])
def test_a_stager_that_cannot_read_is_refused(buffers: int, threads: int) -> None:
    with pytest.raises(ValueError, match="never reads"):
        Stager(SlowFile(), buffers, 4096, threads)


def test_a_range_larger_than_a_buffer_is_refused() -> None:
    stager = Stager(SlowFile(), 1, 4096, 1)
    with pytest.raises(ValueError, match="4097 bytes do not fit a buffer of 4096"):
        stager.submit(0, 4097)
    stager.close()
