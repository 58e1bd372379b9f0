"""The kernel is asked for a visit's blobs before they are used: each once, not too many."""

from __future__ import annotations

from collections.abc import Iterator
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
    """A mapping that records what the kernel is asked for."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def will_need(self, offset: int, num_bytes: int) -> None:
        self.ranges.append((offset, num_bytes))

    def view(self, offset: int, num_bytes: int) -> np.ndarray:
        return np.full(num_bytes, offset // STRIDE, np.uint8)


def tier(file: Any) -> MappedTier:
    return MappedTier(file, SimpleNamespace(offset=lambda layer, expert: expert * STRIDE, layers=[SimpleNamespace(blob_bytes=BLOB)]))  # type: ignore[arg-type]


def test_each_blob_is_asked_for_once_and_only_so_far_ahead() -> None:
    file = Asked()
    experts = list(range(1, 60, 2))
    visit = tier(file).visit(0, experts)
    wanted = [(expert * STRIDE, BLOB) for expert in experts]
    for used, expert in enumerate(experts):
        assert file.ranges == wanted[: used + BLOBS_AHEAD]
        assert visit.next_blob()[0] == expert
    assert file.ranges == wanted


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "experts.bin"
    path.write_bytes(np.random.default_rng(0).bytes(48 * STRIDE))
    if not drop_cached(path) or cached_bytes(path):
        pytest.skip("the page cache of this file system does not let go")
    yield path


def test_far_apart_blobs_read_little_else(cold: Path) -> None:
    """Without being asked, the kernel reads around each fault."""
    file = MappedFile(cold, 48 * STRIDE)
    experts = list(range(0, 48, 3))
    visit = tier(file).visit(0, experts)
    copies = [visit.next_blob().tobytes() for _ in experts]
    cached = cached_bytes(cold)
    assert cached is not None and len(experts) * BLOB <= cached <= 2.5 * len(experts) * BLOB
    whole = cold.read_bytes()
    assert copies == [whole[expert * STRIDE : expert * STRIDE + BLOB] for expert in experts]
    file.close()
