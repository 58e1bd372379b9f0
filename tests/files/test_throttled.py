"""A link's pace by a clock that the test owns, and readers that pass it: the bytes are the same, only later."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from strata_recipes.files.buffered import BufferedFile
from strata_recipes.files.mapped import MappedFile
from strata_recipes.files.pace import BURST_S, Pace
from strata_recipes.files.residency import drop_cached
from strata_recipes.files.throttled import ThrottledCached, ThrottledFile, ThrottledMapping


class Clock:
    """Time that passes only in sleep."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def pace(rate: float) -> tuple[Pace, Clock]:
    clock = Clock()
    return Pace(rate, clock=clock, sleep=clock.sleep), clock


def test_transfers_queue_up_behind_each_other() -> None:
    link, clock = pace(1000)
    for _ in range(10):
        with link.passing(500):
            pass
    assert clock.now - 1000 == pytest.approx(5.0, abs=BURST_S * 1.001)
    assert link.busy_s == pytest.approx(5.0)


def test_what_happens_inside_goes_on_meanwhile() -> None:
    link, clock = pace(1000)
    with link.passing(1000):
        clock.now += 0.4
    assert clock.now - 1000 == pytest.approx(1.0, abs=BURST_S * 1.001)
    with link.passing(1000):
        clock.now += 3.0  # slower than the link by itself: nothing is added
    assert clock.now - 1000 == pytest.approx(4.0, abs=BURST_S * 1.001)


def test_an_idle_link_saves_up_no_more_than_a_burst() -> None:
    link, clock = pace(1000)
    clock.now += 100
    before = clock.now
    with link.passing(1000):
        pass
    assert 1.0 - BURST_S * 1.001 <= clock.now - before <= 1.0


def test_a_slower_rate_takes_more_of_the_links_time() -> None:
    link, clock = pace(1000)
    with link.passing(100, rate=100):
        pass
    assert clock.now - 1000 == pytest.approx(1.0, abs=BURST_S * 1.001)


@pytest.mark.parametrize("rate", [0, -1])
def test_a_link_that_never_ends_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="never ends"):
        Pace(rate)


def test_threads_share_a_link() -> None:
    link = Pace(1e9)
    threads = [threading.Thread(target=lambda: [link._reserve(0.25) for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert link.busy_s == 100.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "experts.bin"
    path.write_bytes(os.urandom(1 << 20))
    return path


def test_a_throttled_file_gives_the_same_bytes(path: Path) -> None:
    link, clock = pace(1 << 20)
    file = ThrottledFile(BufferedFile(path, 1 << 20), link)
    out = np.zeros(1 << 18, np.uint8)
    for at in range(4):
        file.read(at << 18, 1 << 18, out)
        assert out.tobytes() == path.read_bytes()[at << 18 : (at + 1) << 18]
    assert clock.now - 1000 == pytest.approx(1.0, abs=BURST_S * 1.001)
    assert file.counters.bytes_read == 1 << 20
    file.check()
    file.close()


def test_a_throttled_mapping_pays_for_what_the_cache_does_not_hold(path: Path) -> None:
    drive, clock = pace(1 << 20)
    up = Pace(1 << 22, clock=clock, sleep=clock.sleep)
    assert drop_cached(path)
    file = ThrottledMapping(path, 1 << 20, drive, faults=1 << 19, up=up)
    drive_s = 0.0
    assert file.view(0, 1 << 18).tobytes() == path.read_bytes()[: 1 << 18]
    assert drive.busy_s == pytest.approx(0.5) and up.busy_s == pytest.approx(1 / 16)
    drive_s = drive.busy_s
    file.view(0, 1 << 18)  # cached now: only the way up
    assert drive.busy_s == drive_s and up.busy_s == pytest.approx(2 / 16)
    path.read_bytes()
    file.read(0, 1 << 20, np.zeros(1 << 20, np.uint8))
    file.will_need(0, 1 << 20)
    assert drive.busy_s == drive_s
    file.close()


def test_throttled_reads_through_the_cache_pay_for_what_it_does_not_hold(path: Path) -> None:
    drive, clock = pace(1 << 20)
    data = path.read_bytes()
    assert drop_cached(path)
    mapped = MappedFile(path, 1 << 20)
    file = ThrottledCached(BufferedFile(path, 1 << 20, apart=True), mapped, drive, faults=1 << 19)
    out = np.zeros(1 << 18, np.uint8)
    file.read(1 << 18, 1 << 18, out)
    assert out.tobytes() == data[1 << 18 : 1 << 19]
    assert drive.busy_s == pytest.approx(0.5) == pytest.approx(clock.now - 1000, abs=BURST_S * 1.001)
    file.read((1 << 18) + (1 << 17), 1 << 18, out)  # half of it is cached now
    assert out.tobytes() == data[(1 << 18) + (1 << 17) :][: 1 << 18]
    assert drive.busy_s == pytest.approx(0.75)
    file.check()
    file.close()
    mapped.close()
