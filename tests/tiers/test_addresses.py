"""A table of addresses, with a card's reach stood in for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from strata_recipes.tiers.addresses import AddressTable


class Tier(dict[tuple[int, int], int]):
    """Addresses by pair."""

    def pairs(self) -> list[tuple[int, int]]:
        return sorted(self)

    def blob(self, layer: int, expert: int) -> int:
        return self[layer, expert]


def table(vram: dict[tuple[int, int], int], ram: dict[tuple[int, int], int]) -> AddressTable:
    """Of two experts in one layer."""
    slots, g = Tier(vram), SimpleNamespace(num_layers=1, num_experts=2)
    tiers: Any = SimpleNamespace(
        index=SimpleNamespace(geometry=g), vram=slots, ram=Tier(ram), card_address=lambda blob: blob, address=slots.blob
    )
    return AddressTable(tiers, torch.device("cpu"))


@pytest.mark.parametrize(("place", "found"), [(64, 64), (0, 0), (40, 0)], ids=["reached", "not locked", "off the grid"])
def test_what_a_kernel_cannot_read_has_none(place: int, found: int) -> None:
    at = table({(0, 0): 16}, {(0, 1): place})
    assert at.on_card.tolist() == at.host.tolist() == [[16, found]]
    assert at.near.tolist() == [[1, 0]]
    assert at.whole == at.whole_wherever == bool(found)


@pytest.mark.parametrize("place", [64, 0, 40])
def test_a_slot_that_is_given_up_may_leave_an_expert_without(place: int) -> None:
    """RAM holds both: what graphs of whole tokens read once the slot is another's is the place there."""
    at = table({(0, 0): 16}, {(0, 0): place, (0, 1): 128})
    assert at.whole and at.whole_wherever == (place == 64)
