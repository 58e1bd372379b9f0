"""Slots on a card, whose calls are stood in for here: the same swaps, every copy between two waits. gpu/test_exchange.py has the card."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from strata_recipes.files.aligned import AlignedBuffer
from strata_recipes.schedule.startup import Copy, default_order, startup_schedule
from strata_recipes.tiers import cuda_slots
from strata_recipes.tiers.cuda_slots import CudaSlots, Slot
from strata_recipes.tiers.exchange import Exchange, Places, Swap, hotter, ranks
from strata_recipes.tiers.ledger import Ledger
from strata_recipes.tiers.lookup import ExpertTiers
from strata_recipes.tiers.ram import ram_blobs
from strata_recipes.tiers.verify import tier_checksums
from tests.tiers.small_pack import SmallPack
from tests.tiers.test_lookup import mapped

EVENTS: list[str] = []


class FakeStream:
    """Copies of the CPU are done at once; what is told is the order of calls."""

    def __init__(self, *device: object) -> None:
        EVENTS.append("made")

    def wait_stream(self, other: object) -> None:
        EVENTS.append("after")

    def synchronize(self) -> None:
        EVENTS.append("copied")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    tensor_of = cuda_slots.tensor_of

    def told(view: Any) -> torch.Tensor:
        EVENTS.append("copy")
        return tensor_of(view)

    monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: FakeStream())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: EVENTS.append("all done"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (1 << 30, 1 << 30))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(cuda_slots, "tensor_of", told)
    yield EVENTS
    EVENTS.clear()


class NoLocks:
    """Nothing is page-locked here."""

    def lock(self, view: object) -> bool:
        return False


def on_card(pack: SmallPack, slots: int, blobs: int) -> ExpertTiers:
    schedule = startup_schedule(pack.index, default_order(pack.index), slots, blobs)
    ledger = Ledger(10**6, 10**6)
    vram = CudaSlots(schedule.fill, ledger, torch.device("cpu"), NoLocks(), print, 0)  # type: ignore[arg-type]
    ram = ram_blobs(schedule.copy, ledger)
    for pair in vram.pairs():
        vram.write(*pair, pack.blobs[pair])
    for pair in ram.pairs():
        ram.place(*pair)[:] = pack.blobs[pair]
    return ExpertTiers(pack.index, vram, ram, mapped(pack))


def test_nothing_that_was_launched_sees_a_copy_and_all_that_follows_does(card: list[str], small_pack: SmallPack) -> None:
    tiers, spare = on_card(small_pack, 6, 6), AlignedBuffer(small_pack.index.max_blob_bytes, 4096)
    written: list[str] = []
    replace = tiers.ram.replace

    def told(*args: Any) -> None:
        written.extend(card)
        replace(*args)

    tiers.ram.replace = told  # type: ignore[method-assign]
    exchange = Exchange(tiers, spare.bytes)
    card.clear()
    exchange.swap(Swap((1, 3), (1, 1)))
    assert card == written == ["copy", "copied", "all done", "copy", "copied"], "RAM is written when all else is done"
    card.clear()
    exchange.swap(Swap((1, 5), (1, 3)))  # from the file
    assert card == ["all done", "copy", "copied"]
    tiers.close()


def test_random_traffic(card: list[str], small_pack: SmallPack) -> None:
    tiers, spare = on_card(small_pack, 7, 6), AlignedBuffer(small_pack.index.max_blob_bytes, 4096)
    exchange, places, rank = Exchange(tiers, spare.bytes), Places(tiers), ranks(default_order(small_pack.index), (3, 6))
    addresses = sorted(str(tiers.address(*pair)) for pair in tiers.vram.pairs())
    rng, swaps = np.random.default_rng(5), 0
    while swaps < 1000:
        for swap in hotter(rng.integers(0, 50, (3, 6)).astype(float), rank, places, 4):
            exchange.swap(swap)
            places.change(swap)
            swaps += 1
    vram, ram = tiers.vram.pairs(), tiers.ram.pairs()
    assert len(vram) == 7 and len(ram) == 6 and not set(vram) & set(ram)
    for tier in (tiers.vram, tiers.ram):
        assert all(found == int(small_pack.checksums[layer, expert]) for layer, expert, found in tier_checksums(tier))
    assert sorted(str(tiers.address(*pair)) for pair in vram) == addresses, "the same slots"
    assert all(tiers.vram.room(*pair) >= small_pack.index.layers[pair[0]].blob_bytes for pair in vram)
    tiers.close()


def test_a_layer_that_is_all_in_slots_is_looked_up_at_once_and_as_one_by_one(card: list[str], small_pack: SmallPack) -> None:
    tiers = on_card(small_pack, 7, 11)  # 6 of layer 0, one of layer 1
    spare = AlignedBuffer(small_pack.index.max_blob_bytes, 4096)
    Exchange(tiers, spare.bytes).swap(Swap((1, 4), (1, 0)))
    vram = tiers.vram
    assert isinstance(vram, CudaSlots)
    for layer, experts in ((0, [0, 1, 2, 3, 4, 5]), (0, [2, 5]), (1, [4]), (1, [0, 4, 5]), (0, [])):
        one_by_one = [(expert, vram.blob(layer, expert) if (layer, expert) in vram else None) for expert in experts]
        tiers.take_counters()
        found = [(expert, blob if isinstance(blob, Slot) else None) for expert, blob in tiers.blobs(layer, experts)]
        assert found == one_by_one and tiers.take_counters().vram_hits == sum(slot is not None for _, slot in found)
        for expert, slot in found:
            if slot is not None:
                whole = vram.bytes(layer, expert)
                assert slot.num_bytes == whole.size and whole.tobytes() == small_pack.blobs[layer, expert].tobytes()
                assert slot.address == vram._places[layer, expert].data_ptr()
    assert vram.all_of(1, [0]) is None  # it went
    tiers.close()


@pytest.mark.parametrize(("num_bytes", "lost"), [(1_382_400, 16 << 10), (3_686_400, 256 << 10), (102_400, 4 << 10)])
def test_slices_leave_nearly_nothing_of_a_cards_segments(num_bytes: int, lost: int) -> None:
    copies = [Copy(i, 0, i, i * num_bytes, num_bytes) for i in range(24_000)]
    at = 0
    while at + len(run := cuda_slots._run(copies, at)) < len(copies):
        size = num_bytes * len(run)
        assert run == copies[at : at + len(run)] and cuda_slots.SLICE_BYTES * 7 // 8 - num_bytes <= size <= cuda_slots.SLICE_BYTES
        assert -size % cuda_slots.SEGMENT_BYTES < lost
        at += len(run)
    assert list(run) == copies[at:]


def test_a_slice_holds_one_blob_that_is_larger_than_it() -> None:
    copies = [Copy(i, 0, i, i << 31, 1 << 31) for i in range(3)]
    assert [len(cuda_slots._run(copies, at)) for at in range(3)] == [1, 1, 1]
