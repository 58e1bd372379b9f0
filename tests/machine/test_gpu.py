"""The card that CUDA takes, found by NVML: order, masks, missing and broken drivers, with NVML faked."""

from __future__ import annotations

import pytest

from strata_recipes.errors import DeviceError
from strata_recipes.machine.gpu import Card, find_card
from strata_recipes.units import GiB
from tests.machine.fake_nvml import FakeNvml

A, B = ("GPU-aaaa1111", "NVIDIA GeForce RTX 4090", 20), ("GPU-bbbb2222", "NVIDIA GeForce RTX 4090", 7)
OTHER = ("GPU-cccc3333", "NVIDIA T400", 3)


def found(nvml: FakeNvml, mask: str | None = None, first: str = "", **more: str) -> Card | None:
    environment = {**more} if mask is None else {"CUDA_VISIBLE_DEVICES": mask, **more}

    def first_uuid() -> str:
        assert first, "the driver was asked, though the order was clear"
        return first

    card = find_card(nvml, environment, first_uuid)
    assert nvml.open == 0, "NVML stays open"
    return card


def test_the_facts_of_a_card() -> None:
    card = found(FakeNvml(A))
    assert card is not None
    assert (card.uuid, card.name, card.capability) == (A[0], A[1], "8.9")
    assert (card.vram_bytes, card.free_bytes) == (24 * GiB, 20 * GiB)
    assert card.bandwidth == pytest.approx(1008e9, rel=1e-3)  # the maker's figure for this card
    assert card.flops == 165e12 and card.assumed == ("pcie",)
    assert 24e9 < card.pcie < 31.5e9  # gen4 x16 is 31.5 in theory


def test_an_unknown_card_says_what_is_assumed() -> None:
    card = found(FakeNvml(OTHER))
    assert card is not None and card.assumed == ("flops", "pcie")


@pytest.mark.parametrize(
    ("mask", "uuid"), [(None, A[0]), ("0", A[0]), ("1", B[0]), ("1,0", B[0]), (B[0], B[0]), ("GPU-bb", B[0]), (" 1 ", B[0]), ("1,-1", B[0])]
)
def test_the_mask_chooses(mask: str | None, uuid: str) -> None:
    card = found(FakeNvml(A, B), mask)
    assert card is not None and card.uuid == uuid


@pytest.mark.parametrize("mask", ["", "-1", "-1,0"])
def test_a_mask_can_hide_all(mask: str) -> None:
    assert found(FakeNvml(A, B), mask) is None


@pytest.mark.parametrize(
    ("mask", "message"), [("7", "names '7', this PC has 2 cards"), ("0,0", "twice"), ("GPU-zz", "names 'GPU-zz'"), ("GPU-", "names 'GPU-'")]
)
def test_a_mask_that_names_no_card_is_told(mask: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        found(FakeNvml(A, B), mask)


def test_unlike_cards_are_matched_by_the_uuid_that_cuda_names() -> None:
    """NVML lists the small card first; CUDA takes the fast one. The free memory must be that one's."""
    card = found(FakeNvml(OTHER, A), first=A[0])
    assert card is not None and (card.uuid, card.free_bytes) == (A[0], 20 * GiB)


def test_unlike_cards_in_bus_order_need_no_driver() -> None:
    card = found(FakeNvml(OTHER, A), CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert card is not None and card.uuid == OTHER[0]


def test_a_card_that_nvml_does_not_list_is_told() -> None:
    with pytest.raises(DeviceError, match="GPU-gone, which NVML does not list"):
        found(FakeNvml(OTHER, A), first="GPU-gone")


@pytest.mark.parametrize("code", [FakeNvml.NVML_ERROR_LIBRARY_NOT_FOUND, FakeNvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_no_driver_is_no_gpu(code: int) -> None:
    assert found(FakeNvml(A, init_error=code)) is None


def test_no_card_is_no_gpu() -> None:
    assert found(FakeNvml()) is None


def test_a_broken_driver_is_told() -> None:
    with pytest.raises(DeviceError, match="does not answer"):
        found(FakeNvml(A, init_error=999))
    with pytest.raises(DeviceError, match="fails on a card"):
        found(FakeNvml(A, count_error=15))
