"""RAM for cells that a card reads in place: all of it locked or none of it kept, and the same bytes for each sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from strata_recipes.engine import kv_memory
from strata_recipes.engine.kv_memory import LockedCells
from strata_recipes.errors import DeviceError

SLICE = 1 << 14


class FakeLocks:
    """Locks `most` slices. `shift`: how far from the host's address of a view a card finds it; `most_reached`: of views that it finds."""

    def __init__(self, most: int, shift: Callable[[Any], int] = lambda view: 0, most_reached: int = 99) -> None:
        self._most, self._shift, self._reached = most, shift, most_reached
        self.held: list[int] = []

    def lock(self, view: Any) -> bool:
        if len(self.held) == self._most:
            return False
        self.held.append(view.ctypes.data)
        return True

    def card_address(self, view: Any) -> int:
        self._reached -= 1
        return view.ctypes.data + self._shift(view) if self._reached >= 0 else 0

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
    first = [cells(size).bytes for size in (66, SLICE, SLICE)]
    assert [part.numel() for part in first] == [66, SLICE, SLICE]
    assert [part.data_ptr() - first[0].data_ptr() for part in first] == [0, 66, 66 + SLICE]
    with pytest.raises(AssertionError, match="32835 bytes of 32834 that were planned"):
        cells(1)
    cells.begin()
    assert cells(8).bytes.data_ptr() == first[0].data_ptr()
    cells.close()
    assert not locks.held


@pytest.mark.parametrize("shift", [0, 1 << 40, -4096])
def test_a_part_lies_where_the_card_finds_it(shift: int) -> None:
    """Across slices too, which this card has side by side as the host has them."""
    locks: Any = FakeLocks(9, lambda view: shift)
    cells = LockedCells(2 * SLICE + 66, locks)
    for size in (66, SLICE + 5, SLICE - 5):
        part = cells(size)
        assert part.card_address == part.bytes.data_ptr() + shift
    assert len(locks.held) == 3
    cells.close()


def test_slices_that_a_card_finds_apart_become_one() -> None:
    """Each is mapped somewhere of its own, as where a device does not use the host's addresses: an array may lie across two of them."""
    locks: Any = FakeLocks(9, lambda view: view.size * 1000 + view.ctypes.data % SLICE + len(locks.held))
    cells = LockedCells(2 * SLICE + 66, locks)
    first, second = cells(SLICE + 1), cells(SLICE)
    assert len(locks.held) == 1 and first.card_address is not None and second.card_address is not None
    assert second.card_address - first.card_address == second.bytes.data_ptr() - first.bytes.data_ptr() == SLICE + 1
    assert first.card_address - first.bytes.data_ptr() == (2 * SLICE + 66) * 1000 + locks.held[0] % SLICE + 1
    cells.close()
    assert not locks.held


def test_memory_that_is_locked_and_out_of_the_cards_reach_is_refused() -> None:
    locks: Any = FakeLocks(9, most_reached=1)
    with pytest.raises(DeviceError, match=r"page-locks .* of the .* beyond kv\.resident_tokens"):
        LockedCells(2 * SLICE, locks)
    assert not locks.held


def test_a_refusal_names_both_sizes_and_leaves_nothing_locked() -> None:
    locks: Any = FakeLocks(2)
    with pytest.raises(DeviceError, match=r"page-locks .* of the .* beyond kv\.resident_tokens: raise the limit"):
        LockedCells(3 * SLICE, locks)
    assert not locks.held
