"""What the page cache holds of a file, against reads whose effect on it is known."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from strata_recipes.files.buffered import BufferedFile
from strata_recipes.files.mapped import MappedFile
from strata_recipes.files.residency import cached_bytes, cached_share, drop_cached
from strata_recipes.files.unbuffered_linux import DirectFile

SIZE = (8 << 20) + 100


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    path = tmp_path / "experts.bin"
    path.write_bytes(os.urandom(SIZE))
    assert cached_bytes(path) == SIZE  # a file just written lies in the cache
    assert drop_cached(path)
    return path


def test_a_dropped_file_is_not_held(cold: Path) -> None:
    assert cached_bytes(cold) == 0
    assert cached_share(cold, 4096, 4096) == 0.0


def test_direct_reads_leave_no_page_and_mapped_reads_leave_theirs(cold: Path) -> None:
    direct = DirectFile(cold, SIZE)
    direct.read(0, SIZE, np.zeros(SIZE, np.uint8))
    direct.close()
    assert cached_bytes(cold) == 0
    mapped = MappedFile(cold, SIZE)
    mapped.read(0, 1 << 20, np.zeros(1 << 20, np.uint8))
    assert cached_share(cold, 0, 1 << 20) == 1.0
    mapped.drop(0, 1 << 20)
    assert cached_share(cold, 0, 1 << 20) == 0.0
    mapped.close()


def test_will_need_reads_ahead(cold: Path) -> None:
    mapped = MappedFile(cold, SIZE)
    mapped.will_need(4 << 20, 2 << 20)
    for _ in range(30_000):  # the kernel reads on its own time: only a failure waits long
        if cached_share(cold, 4 << 20, 2 << 20) == 1.0:
            break
        time.sleep(0.01)
    assert cached_share(cold, 4 << 20, 2 << 20) == 1.0
    assert cached_share(cold, 0, 1 << 20) == 0.0
    mapped.close()


def test_reads_that_lie_apart_bring_no_byte_beside(cold: Path) -> None:
    """Whatever the cache holds before them, which else is taken for a stream that goes on."""
    file = BufferedFile(cold, SIZE, apart=True)
    for offset in (0, 4 << 20, (4 << 20) + 340_000 // 4096 * 4096, 6 << 20):
        file.read(offset, 340_000, np.zeros(340_000, np.uint8))
    assert cached_bytes(cold) == sum(-(-n // 4096) * 4096 for n in (340_000, 339_968 + 340_000, 340_000))
    file.close()


def test_partial_pages_count_their_bytes_only(cold: Path) -> None:
    cold.read_bytes()
    assert cached_bytes(cold, [(100, 50)]) == 50
    assert cached_bytes(cold, [(4000, 200), (SIZE - 30, 30)]) == 230
    assert cached_bytes(cold, []) == 0


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert cached_bytes(tmp_path / "empty") == 0


def test_of_another_users_file_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux then calls every page cached, whatever is: a plan would count on it."""
    path = tmp_path / "shared.bin"
    path.write_bytes(bytes(8192))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert cached_bytes(path) is not None  # one's own may be read-only
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(path).st_uid + 1)
    assert cached_bytes(path) is None and cached_share(path, 0, 4096) is None
    file = MappedFile(path, 8192)
    assert file.cached_share(0, 4096) is None
    file.close()
