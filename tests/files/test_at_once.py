"""Ranges read at once by threads: the bytes, the first error, an interrupted call, and what is left when it is closed."""

from __future__ import annotations

import _thread
import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from strata_recipes.errors import FileError
from strata_recipes.files import at_once
from strata_recipes.files.at_once import PARTS, ReadsAtOnce
from strata_recipes.files.buffered import BufferedFile, ReadAt
from strata_recipes.files.source import Bytes, Counters

SIZE = 1 << 20


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("at_once") / "experts.bin"
    path.write_bytes(np.random.default_rng(2).bytes(SIZE))
    return path


def opened(path: Path, threads: int, read_at: ReadAt | None = None) -> tuple[ReadsAtOnce, Counters]:
    counters = Counters()
    return ReadsAtOnce(lambda: BufferedFile(path, SIZE, read_at=read_at, apart=True, counters=counters), threads), counters


def ranges(*spans: tuple[int, int]) -> list[tuple[int, Bytes]]:
    return [(offset, np.zeros(num_bytes, np.uint8)) for offset, num_bytes in spans]


def check(path: Path, asked: Sequence[tuple[int, Bytes]]) -> None:
    data = path.read_bytes()
    for offset, place in asked:
        assert place.tobytes() == data[offset : offset + place.size]


def alive() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("at-once-")]


@pytest.mark.parametrize("threads", [1, 3, 16])
def test_every_place_gets_its_bytes(threads: int, path: Path) -> None:
    reads, counters = opened(path, threads)
    whole = 0
    for number in (0, 1, 2, 3, 10, 40):
        asked = ranges(*((4096 * 6 * at, 20_000 + at) for at in range(number)))
        reads.read(asked)
        check(path, asked)
        whole += sum(place.size for _, place in asked)
    assert (counters.bytes_read, counters.in_flight) == (whole, 0)
    assert len(alive()) == threads
    reads.close()
    assert not alive()


@pytest.mark.parametrize(
    ("number", "num_bytes", "parts"),
    [(1, 1_382_400 // 2, PARTS), (2, 100_000, 4), (3, 100_000, 3), (1, 5000, 2), (1, 4096, 1), (1, 1, 1)],
)
def test_few_ranges_are_read_in_parts_that_start_on_pages(number: int, num_bytes: int, parts: int, path: Path) -> None:
    starts: list[int] = []

    def told(handle: int, buffers: Sequence[memoryview], at: int) -> int:
        starts.append(at)
        return os.preadv(handle, buffers, at)

    reads, counters = opened(path, 4, told)
    asked = ranges(*((at * 102_400, num_bytes) for at in range(number)))
    reads.read(asked)
    check(path, asked)
    assert len(starts) == counters.reads == parts and not any(start % 4096 for start in starts)
    reads.close()


def failing_at(*offsets: int) -> ReadAt:
    def read_at(handle: int, buffers: Sequence[memoryview], at: int) -> int:
        if at in offsets:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.preadv(handle, buffers, at)

    return read_at


@pytest.mark.parametrize("failing", [(0,), (40_960 * 3,), (40_960 * 4, 40_960 * 2)])
def test_the_others_finish_where_a_read_fails_and_the_first_asked_is_told(failing: tuple[int, ...], path: Path) -> None:
    reads, counters = opened(path, 3, failing_at(*failing))
    asked = ranges(*((40_960 * at, 30_000) for at in range(5)))
    with pytest.raises(FileError) as caught:
        reads.read(asked)
    for part in (str(path), "30000 bytes", f"offset {min(failing)} ", "errno 5"):
        assert part in str(caught.value)
    check(path, [one for one in asked if one[0] not in failing])
    assert (counters.in_flight, counters.reads) == (0, 5 - len(failing))
    again = ranges((4096, 100), (8192, 100), (12288, 100))
    reads.read(again)
    check(path, again)
    reads.close()
    assert not alive()


def test_a_mistake_of_the_callers_is_raised_too(path: Path) -> None:
    reads, _ = opened(path, 2)
    with pytest.raises(ValueError, match="do not lie in"):
        reads.read(ranges((SIZE - 1, 2)))
    reads.close()


def test_an_interrupted_call_leaves_the_rest_and_the_next_waits_for_what_is_under_way(path: Path) -> None:
    reached, go_on, calls = threading.Event(), threading.Event(), []

    def slow(handle: int, buffers: Sequence[memoryview], at: int) -> int:
        calls.append(at)
        if len(calls) == 1:
            reached.set()
            _thread.interrupt_main()
            assert go_on.wait(60)
        return os.preadv(handle, buffers, at)

    reads, _ = opened(path, 1, slow)
    left = ranges(*((4096 * at, 4096) for at in range(20)))
    with pytest.raises(KeyboardInterrupt):
        reads.read(left)
        reached.wait(60)  # never gets here
    threading.Timer(0.05, go_on.set).start()
    again = ranges((8192, 4096), (0, 4096), (4096, 4096))
    reads.read(again)
    check(path, [left[0], *again])
    assert calls == [0, 8192, 0, 4096] and not any(place.any() for _, place in left[1:])
    reads.close()


def test_a_call_interrupted_while_it_asks_is_over(path: Path) -> None:
    reads, _ = opened(path, 2)
    queue, asked = reads._queue, ranges(*((4096 * at, 4096) for at in range(5)))

    class Interrupted:
        left, get = 2, queue.get

        def put(self, job: object) -> None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            queue.put(job)  # type: ignore[arg-type]

    reads._queue = Interrupted()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        reads.read(asked)
    reads._queue = queue
    reads.read(asked)  # those that were never queued are not waited for
    check(path, asked)
    reads.close()


def test_closing_waits_no_longer_for_a_dead_drive_whose_handle_stays_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_once, "JOIN_S", 0.05)
    go_on, before = threading.Event(), set(os.listdir("/proc/self/fd"))

    def dead(handle: int, buffers: Sequence[memoryview], at: int) -> int:
        _thread.interrupt_main()
        assert go_on.wait(60)
        return os.preadv(handle, buffers, at)

    reads, _ = opened(path, 3, dead)
    with pytest.raises(KeyboardInterrupt):
        reads.read(ranges((0, 4096)))
    reads.close()
    assert len(alive()) == 1 and len(set(os.listdir("/proc/self/fd")) - before) == 1
    go_on.set()
    alive()[0].join(60)
    reads.close()
    assert not alive() and set(os.listdir("/proc/self/fd")) == before


def test_closed_is_closed(path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    reads, _ = opened(path, 4)
    reads.close()
    reads.close()
    assert set(os.listdir("/proc/self/fd")) == before
    with pytest.raises(RuntimeError, match="closed"):
        reads.read(ranges((0, 10)))


def test_a_handle_that_cannot_be_opened_leaves_none(path: Path) -> None:
    before, files = set(os.listdir("/proc/self/fd")), iter([path, path, path.with_name("none")])
    open_file: Callable[[], BufferedFile] = lambda: BufferedFile(next(files), SIZE)  # noqa: E731
    with pytest.raises(FileError, match="none cannot be opened"):
        ReadsAtOnce(open_file, 3)
    assert set(os.listdir("/proc/self/fd")) == before and not alive()
