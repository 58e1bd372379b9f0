"""Experts that change places on a card: what was launched before a swap reads the old blob, what follows the new; replies are the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernels_numba.device import SIMULATED
from strata_recipes.config.schema import Adapt
from strata_recipes.engine.session import Session
from strata_recipes.files.mapped import MappedFile
from strata_recipes.pack.reader import Pack, open_pack
from strata_recipes.schedule.startup import default_order, startup_schedule
from strata_recipes.tiers.cuda_memory import LockedBuffer, LockedSlices, Locks, tensor_of
from strata_recipes.tiers.cuda_slots import CudaSlots
from strata_recipes.tiers.exchange import Exchange, Places, Swap, hotter, ranks
from strata_recipes.tiers.file_tier import MappedTier
from strata_recipes.tiers.ledger import Ledger
from strata_recipes.tiers.lookup import ExpertTiers
from strata_recipes.tiers.ram import ram_blobs
from strata_recipes.tiers.verify import tier_checksums
from tests.engine.plans import oracle, pack_tiny
from tests.gpu.test_model import on_card
from tests.tiers.small_pack import SmallPack, write_small_pack

pytestmark = pytest.mark.gpu
LONG = 200_000_000  # clock ticks of a card's sleep: a tenth of a second


class OnCard:
    """Slots, page-locked RAM and the file, with the buffer between them."""

    def __init__(self, pack: SmallPack, slots: int, blobs: int, opened: ExitStack) -> None:
        schedule, locks = startup_schedule(pack.index, default_order(pack.index), slots, blobs), Locks(print)
        self.pack, ledger = pack, Ledger(10**7, 10**7)
        self.vram = CudaSlots(schedule.fill, ledger, torch.device("cuda", 0), locks, print, 0)
        self.ram = ram_blobs(schedule.copy, ledger)
        locked = LockedSlices(self.ram.slices, locks)
        locked.wait()
        for pair in self.vram.pairs():
            self.vram.write(*pair, pack.blobs[pair])
        self.vram.flush()
        for pair in self.ram.pairs():
            self.ram.place(*pair)[:] = pack.blobs[pair]
        file = MappedTier(MappedFile(pack.path, pack.index.experts_file_bytes), pack.index)
        self.tiers = ExpertTiers(pack.index, self.vram, self.ram, file, locked=locked)
        opened.callback(self.tiers.close)
        spare = LockedBuffer(pack.index.max_blob_bytes, 4096, locks)
        opened.callback(spare.close)
        self.exchange = Exchange(self.tiers, spare.bytes)


@pytest.fixture
def at(tmp_path: Path) -> Iterator[OnCard]:
    if SIMULATED:
        pytest.skip("the simulator has no streams")
    with ExitStack() as opened:
        yield OnCard(write_small_pack(tmp_path), 6, 6, opened)


@pytest.mark.parametrize("side", [False, True])
def test_kernels_launched_before_read_the_old_blob_and_after_the_new(side: bool, at: OnCard) -> None:
    """On the current stream and on another; of the slot, and of the RAM that an exchange writes."""
    came, went = (1, 3), (1, 1)
    stream = torch.cuda.Stream() if side else torch.cuda.current_stream()
    slot, ram = at.vram._places[went], tensor_of(at.ram.place(*came))
    old_slot, old_ram = (torch.zeros(slot.numel(), dtype=torch.uint8, device="cuda") for _ in range(2))
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        old_slot.copy_(slot)
        old_ram.copy_(ram, non_blocking=True)
    at.exchange.swap(Swap(came, went))
    with torch.cuda.stream(torch.cuda.Stream()):
        new_slot = at.vram._places[came].clone()
    torch.cuda.synchronize()
    np.testing.assert_array_equal(old_slot.cpu().numpy(), at.pack.blobs[went])
    np.testing.assert_array_equal(old_ram.cpu().numpy(), at.pack.blobs[came])
    np.testing.assert_array_equal(new_slot.cpu().numpy(), at.pack.blobs[came])
    np.testing.assert_array_equal(at.ram.blob(*went), at.pack.blobs[went])


def test_ten_thousand_swaps(at: OnCard) -> None:
    rng, swaps, places, rank = np.random.default_rng(3), 0, Places(at.tiers), ranks(default_order(at.pack.index), (3, 6))
    while swaps < 10_000:
        for swap in hotter(rng.integers(0, 50, (3, 6)).astype(float), rank, places, 4):
            at.exchange.swap(swap)
            places.change(swap)
            swaps += 1
    vram, ram = at.vram.pairs(), at.ram.pairs()
    assert len(vram) == len(ram) == 6 and not set(vram) & set(ram)
    for tier in (at.vram, at.ram):
        assert all(found == int(at.pack.checksums[layer, expert]) for layer, expert, found in tier_checksums(tier))


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Pack]]:
    if SIMULATED:
        pytest.skip("the whole model is too big for the simulator")
    with ExitStack() as opened:
        folders = {name: pack_tiny(name, tmp_path_factory.mktemp(name) / "pack") for name in ("tiny-q2_0", "tiny-mixed")}
        yield {name: opened.enter_context(open_pack(folder)) for name, folder in folders.items()}


@pytest.mark.parametrize("name", ["tiny-q2_0", "tiny-mixed"])
@pytest.mark.parametrize(
    "placed", [{"mode": "full_arena", "slots": 24}, {"mode": "resident", "slots": 24}, {"mode": "mapped", "slots": 24}], ids=str
)
@pytest.mark.parametrize("file_io", ["buffered", "direct"])
def test_replies_keep_their_bits(name: str, placed: dict[str, Any], file_io: str, packs: dict[str, Pack]) -> None:
    pack, ids = packs[name], oracle(f"{name}.mid")["ids"][:40]
    found = []
    for adapt in (Adapt(), Adapt(every=1, swaps=6, decay=0.5)):
        with Session(on_card(pack, len(ids), 24, file_io=file_io, adapt=adapt, **placed), pack) as session:
            read = session.prompt(ids)
            reply = session.generate()
            found.append((read.last.tobytes(), reply.tokens))
            if adapt.every:
                assert reply.figures.swaps
                for tier in (session.started.tiers.vram, session.started.tiers.ram):
                    assert all(found == int(pack.checksums[layer, expert]) for layer, expert, found in tier_checksums(tier))
    assert found[0] == found[1]
