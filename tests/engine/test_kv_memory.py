"""RAM for cells that a card reads in place: all of it locked or none of it kept, and the same bytes for each sequence."""

from __future__ import annotations

from typing import Any

import pytest

from strata_recipes.engine import kv_memory
from strata_recipes.engine.kv_memory import LockedCells
from strata_recipes.errors import DeviceError

SLICE = 1 << 14


class FakeLocks:
    """Locks `most` slices."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.held: list[int] = []

    def lock(self, view: Any) -> bool:
        if len(self.held) == self._most:
            return False
        self.held.append(view.ctypes.data)
        return True

    def unlock(self, view: Any) -> None:
        self.held.remove(view.ctypes.data)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_memory, "LOCK_SLICE", SLICE)


def test_each_sequence_is_cut_from_the_same_bytes() -> None:
    locks: Any = FakeLocks(9)
    cells = LockedCells(2 * SLICE + 66, locks)
    assert len(locks.held) == 3
    cells.begin()
    first = [cells(size) for size in (66, SLICE, SLICE)]
    assert [part.numel() for part in first] == [66, SLICE, SLICE]
    assert [part.data_ptr() - first[0].data_ptr() for part in first] == [0, 66, 66 + SLICE]
    with pytest.raises(AssertionError, match="32835 bytes of 32834 that were planned"):
        cells(1)
    cells.begin()
    assert cells(8).data_ptr() == first[0].data_ptr()
    cells.close()
    assert not locks.held


def test_a_refusal_names_both_sizes_and_leaves_nothing_locked() -> None:
    locks: Any = FakeLocks(2)
    with pytest.raises(DeviceError, match=r"page-locks .* of the .* beyond kv\.resident_tokens: raise the limit"):
        LockedCells(3 * SLICE, locks)
    assert not locks.held
