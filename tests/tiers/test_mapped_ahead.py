"""The kernel is asked for a visit's blobs before they are used: those that the page cache lacks, each once, not too many."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from strata_recipes.files.mapped import MappedFile
from strata_recipes.files.residency import cached_bytes, drop_cached
from strata_recipes.tiers.file_tier import BLOBS_AHEAD, MappedTier

BLOB, STRIDE = 300_000, 1 << 20


class Asked:
    """A mapping that records what the kernel is asked for; every third blob is in the page cache."""

    def __init__(self, cached: float | None) -> None:
        self.ranges: list[tuple[int, int]] = []
        self._cached = cached

    def cached_share(self, offset: int, num_bytes: int) -> float | None:
        return 1.0 if offset // STRIDE % 3 == 0 else self._cached

    def will_need(self, offset: int, num_bytes: int) -> None:
        self.ranges.append((offset, num_bytes))

    def view(self, offset: int, num_bytes: int) -> np.ndarray:
        return np.full(num_bytes, offset // STRIDE, np.uint8)


def tier(file: Any) -> MappedTier:
    return MappedTier(file, SimpleNamespace(offset=lambda layer, expert: expert * STRIDE, layers=[SimpleNamespace(blob_bytes=BLOB)]))  # type: ignore[arg-type]


@pytest.mark.parametrize("cached", [0.99, 0.0, None])  # None: the system does not tell
def test_each_missing_blob_is_asked_for_once_and_only_so_far_ahead(cached: float | None) -> None:
    file = Asked(cached)
    experts = list(range(1, 60, 2))
    visit = tier(file).visit(0, experts)
    wanted = [(expert * STRIDE, BLOB) for expert in experts if expert % 3]
    for used, expert in enumerate(experts):
        assert file.ranges == [one for one in wanted if one[0] // STRIDE in experts[: max(BLOBS_AHEAD, used + BLOBS_AHEAD)]]
        assert visit.next_blob()[0] == expert
    assert file.ranges == wanted


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "experts.bin"
    path.write_bytes(np.random.default_rng(0).bytes(48 * STRIDE))
    if not drop_cached(path) or cached_bytes(path):
        pytest.skip("the page cache of this file system does not let go")
    yield path


def test_threads_that_copy_far_apart_blobs_read_little_else(cold: Path) -> None:
    """Without being asked, the kernel reads around each fault."""
    file = MappedFile(cold, 48 * STRIDE)
    experts = list(range(0, 48, 3))
    views = [tier(file).visit(0, experts)]
    blobs = [views[0].next_blob() for _ in experts]
    with ThreadPoolExecutor(4) as threads:
        copies = list(threads.map(np.copy, blobs))
    data = cold.read_bytes
    cached = cached_bytes(cold)
    assert cached is not None and len(experts) * BLOB <= cached <= 2.5 * len(experts) * BLOB
    whole = data()
    assert all(copy.tobytes() == whole[expert * STRIDE : expert * STRIDE + BLOB] for expert, copy in zip(experts, copies, strict=True))
    del blobs
    file.close()
