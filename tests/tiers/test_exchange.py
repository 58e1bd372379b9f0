"""Experts change places: whatever the traffic, each is in one place or the file, whole, and no budget is passed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from strata_recipes.errors import FileError
from strata_recipes.files.aligned import AlignedBuffer
from strata_recipes.schedule.startup import default_order, startup_schedule
from strata_recipes.tiers.exchange import MARGIN, Exchange, Places, Swap, hotter, ranks
from strata_recipes.tiers.heat import Heat
from strata_recipes.tiers.ledger import Ledger
from strata_recipes.tiers.lookup import ExpertTiers
from strata_recipes.tiers.ram import ram_blobs
from strata_recipes.tiers.verify import blob_check, tier_checksums
from strata_recipes.tiers.vram import vram_slots
from tests.tiers.small_pack import SmallPack
from tests.tiers.test_lookup import mapped

LAYERS, EXPERTS = 3, 6
PAIRS = {(layer, expert) for layer in range(LAYERS) for expert in range(EXPERTS)}
SHAPE = (LAYERS, EXPERTS)


class Moving:
    """Tiers whose budgets are exactly what they take with the spare buffer, and what moves in them."""

    def __init__(self, pack: SmallPack, slots: int, blobs: int, ram_start: int | None, file: Any, opened: ExitStack) -> None:
        order = default_order(pack.index)
        schedule = startup_schedule(pack.index, order, slots, blobs, ram_start)
        of_vram, of_ram = (sum(copy.num_bytes for copy in copies) for copies in (schedule.fill, schedule.copy))
        spare = pack.index.max_blob_bytes if slots and blobs else 0
        self.pack, self.ledger = pack, Ledger(of_vram, of_ram + spare)
        self.ledger.take("ram", "exchange buffer", spare)
        vram, ram = vram_slots(schedule.fill, self.ledger, poison=True), ram_blobs(schedule.copy, self.ledger, poison=True)
        for tier in (vram, ram):
            for pair in tier.pairs():
                tier.place(*pair)[:] = pack.blobs[pair]
        self.tiers = ExpertTiers(pack.index, vram, ram, file(pack) if slots + blobs < 18 else None)
        opened.callback(self.tiers.close)
        self.buffer = AlignedBuffer(spare, 4096)
        self.exchange = Exchange(self.tiers, self.buffer.bytes if spare else None)
        self.places, self.rank = Places(self.tiers), ranks(order, SHAPE)

    def move(self, heat: NDArray[np.float64], most: int) -> list[Swap]:
        done = []
        for swap in hotter(heat, self.rank, self.places, most):
            self.exchange.swap(swap)
            self.places.change(swap)
            done.append(swap)
        return done

    def where(self) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        return set(self.tiers.vram.pairs()), set(self.tiers.ram.pairs())

    def check(self) -> None:
        """Every blob whole, by its checksum and by its bytes; nothing outside the budgets."""
        wanted = self.pack.checksums
        for tier in (self.tiers.vram, self.tiers.ram):
            assert all(found == int(wanted[layer, expert]) for layer, expert, found in tier_checksums(tier))
        for layer in range(LAYERS):
            for expert, blob in self.tiers.blobs(layer, range(EXPERTS)):
                np.testing.assert_array_equal(blob, self.pack.blobs[layer, expert])
        use = self.ledger.use()
        assert use.vram.peak_bytes <= use.vram.limit_bytes and use.ram.peak_bytes <= use.ram.limit_bytes


@contextmanager
def moving(pack: SmallPack, slots: int, blobs: int, ram_start: int | None = None, file: Any = mapped) -> Iterator[Moving]:
    with ExitStack() as opened:
        yield Moving(pack, slots, blobs, ram_start, file, opened)


HEATS = st.lists(st.integers(0, 9), min_size=18, max_size=18)


@settings(max_examples=60)
@given(slots=st.integers(0, 18), blobs=st.integers(0, 18), heats=st.lists(HEATS, min_size=1, max_size=8), most=st.integers(1, 18))
def test_random_traffic_leaves_every_expert_in_one_place(
    small_pack: SmallPack, slots: int, blobs: int, heats: list[list[int]], most: int
) -> None:
    blobs = min(blobs, 18 - slots)
    with moving(small_pack, slots, blobs) as at:
        memory = [(part.ctypes.data, part.size) for tier in (at.tiers.vram, at.tiers.ram) for part in tier.slices]
        for values in heats:
            before, heat = at.where(), np.array(values, float).reshape(SHAPE)
            done = at.move(heat, most)
            vram, ram = at.where()
            assert not vram & ram and len(vram) == slots and len(ram) == blobs
            assert len(done) <= most and all(heat[swap.incoming] > heat[swap.outgoing] + MARGIN for swap in done)
            assert vram == before[0] - {swap.outgoing for swap in done} | {swap.incoming for swap in done}
            for swap in done:  # the one that went is where the other came from
                assert (swap.outgoing in ram) == (swap.incoming in before[1])
            assert set(at.tiers.take_moves()) == {pair for swap in done for pair in (swap.incoming, swap.outgoing)}
            at.check()
        assert memory == [(part.ctypes.data, part.size) for tier in (at.tiers.vram, at.tiers.ram) for part in tier.slices]


@settings(max_examples=40)
@given(slots=st.integers(1, 17), heats=st.lists(HEATS, min_size=1, max_size=5), most=st.integers(1, 18))
def test_a_full_arena_keeps_all_in_ram(small_pack: SmallPack, slots: int, heats: list[list[int]], most: int) -> None:
    with moving(small_pack, slots, 18 - slots, ram_start=0) as at:
        for values in heats:
            at.move(np.array(values, float).reshape(SHAPE), most)
            assert at.where()[1] == PAIRS and len(at.where()[0]) == slots
            at.check()


@pytest.mark.parametrize(("slots", "blobs", "ram_start"), [(5, 13, None), (5, 7, None), (5, 0, None), (9, 9, 0)])
def test_ten_thousand_swaps(slots: int, blobs: int, ram_start: int | None, small_pack: SmallPack) -> None:
    rng, swaps, visited = np.random.default_rng(7), 0, set()
    with moving(small_pack, slots, blobs, ram_start) as at:
        while swaps < 10_000:
            heat = rng.integers(0, 100, SHAPE).astype(float)
            done = at.move(heat, 4)
            swaps += len(done)
            visited |= {swap.incoming for swap in done}
        vram, ram = at.where()
        assert len(vram) == slots and len(ram) == (18 if ram_start == 0 else blobs)
        assert ram_start == 0 or not vram & ram
        assert visited == PAIRS, "every expert had a slot at some time"
        at.check()


def test_the_hottest_outside_takes_the_coldest_slot_that_it_fits(small_pack: SmallPack) -> None:
    sizes = [at.blob_bytes for at in small_pack.index.layers]
    assert sizes[0] < sizes[1] == max(sizes)
    heat = np.full(SHAPE, 5.0)
    with moving(small_pack, 6, 12) as at:  # experts 0 and 1 of every layer have slots
        heat[0, 0], heat[1, 1], heat[1, 4] = 0, 4, 9
        assert at.move(heat, 1) == [Swap((1, 4), (1, 1))], "the coldest slot, of layer 0, is too small for layer 1"
        at.check()
    heat = np.full(SHAPE, 5.0)
    with moving(small_pack, 6, 12) as at:
        heat[1, 0], heat[0, 1], heat[0, 4] = 0, 1, 9
        assert at.move(heat, 1) == [Swap((0, 4), (0, 1))], "the coldest blob, of layer 1, is too large for the place in RAM of layer 0"
        at.check()
    with moving(small_pack, 6, 0) as at:
        assert at.move(heat, 1) == [Swap((0, 4), (1, 0))], "what is left to the file needs no place"
        assert at.tiers.vram.room(0, 4) == sizes[1] and at.tiers.vram.blob(0, 4).size == sizes[0]
        heat[0, 4], heat[1, 3] = 0, 9
        assert at.move(heat, 1) == [Swap((1, 3), (0, 4))], "the slot is as large as ever"
        at.check()


def one_by_one(heat: NDArray[np.float64], rank: NDArray[np.int64], places: Places, most: int) -> list[Swap]:
    """The same choice, said plainly: each pair against each."""
    cold = sorted((pair for pair in np.ndindex(*heat.shape) if places.vram[pair]), key=lambda pair: (heat[pair], -rank[pair]))
    hot = sorted((pair for pair in np.ndindex(*heat.shape) if not places.vram[pair]), key=lambda pair: (-heat[pair], rank[pair]))
    found: list[Swap] = []
    for came in hot:
        for went in cold:
            fits = places.vram[went] >= places.blob_bytes[came[0]]
            fits &= not places.ram[came] or places.ram[went] > 0 or places.ram[came] >= places.blob_bytes[went[0]]
            if fits and heat[came] > heat[went] + MARGIN and len(found) < most and went not in {swap.outgoing for swap in found}:
                found.append(Swap(came, went))  # type: ignore[arg-type]  # ndindex gives pairs
                break
    return found


@settings(max_examples=150)
@given(seed=st.integers(0, 1 << 30), slots=st.integers(0, 60), blobs=st.integers(0, 60), most=st.integers(1, 9), top=st.integers(1, 30))
def test_the_choice_is_the_plain_one(seed: int, slots: int, blobs: int, most: int, top: int) -> None:
    """Places of any size, as they are after many swaps; also more candidates than are sorted at first."""
    rng, places = np.random.default_rng(seed), Places.__new__(Places)
    places.blob_bytes = rng.integers(1, 4, 5)
    rank, held = rng.permutation(60).reshape(5, 12), rng.permutation(60)
    places.vram, places.ram = np.zeros((5, 12), np.int64), np.zeros((5, 12), np.int64)
    for table, chosen in ((places.vram, held[:slots]), (places.ram, held[slots : slots + blobs] if seed % 3 else held[: slots + blobs])):
        layers, experts = np.divmod(chosen, 12)
        table[layers, experts] = places.blob_bytes[layers] + rng.integers(0, 3, chosen.size)
    heat = rng.integers(0, top, (5, 12)).astype(float)
    assert list(hotter(heat, rank, places, most)) == one_by_one(heat, rank, places, most)


def test_of_experts_alike_the_start_order_decides(small_pack: SmallPack) -> None:
    with moving(small_pack, 6, 0) as at:
        heat = np.zeros(SHAPE)
        heat[1, 2] = heat[1, 5] = 3
        assert at.move(heat, 1) == [Swap((1, 2), (1, 1))], "the hotter by the start's order comes, the colder by it goes"


def test_one_choice_more_is_chance(small_pack: SmallPack) -> None:
    with moving(small_pack, 6, 12) as at:
        heat = np.zeros(SHAPE)
        heat[0, 3] = MARGIN
        assert at.move(heat, 4) == []


def test_a_read_that_fails_leaves_all_as_it_was(small_pack: SmallPack, monkeypatch: pytest.MonkeyPatch) -> None:
    with moving(small_pack, 6, 3) as at:
        before = at.where()
        wrong = small_pack.checksums.copy()
        wrong[1, 5] ^= np.uint64(1)
        monkeypatch.setattr(at.tiers, "_check_blob", blob_check(small_pack.path, small_pack.index, wrong))
        heat = np.zeros(SHAPE)
        heat[1, 5] = 7
        with pytest.raises(FileError, match="expert 5 of layer 1"):
            at.move(heat, 1)
        monkeypatch.undo()
        assert at.where() == before and at.tiers.take_moves() == []
        at.check()


@pytest.mark.parametrize("broken", ["vram", "ram"])
def test_an_interrupted_swap_never_shows_half_a_blob(broken: str, small_pack: SmallPack, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(place: NDArray[np.uint8], blob: NDArray[np.uint8]) -> None:
        place[: blob.size // 2] = blob[: blob.size // 2]
        raise KeyboardInterrupt

    with moving(small_pack, 6, 12) as at:
        tier = getattr(at.tiers, broken)
        replace = tier.replace

        def half(*args: Any) -> None:
            with monkeypatch.context() as patch:
                patch.setattr("strata_recipes.tiers.blobs.np.copyto", stopped)
                replace(*args)

        monkeypatch.setattr(tier, "replace", half)
        with pytest.raises(KeyboardInterrupt):
            at.exchange.swap(Swap((1, 4), (1, 1)))
        for held in (at.tiers.vram, at.tiers.ram):
            assert all(found == int(small_pack.checksums[layer, expert]) for layer, expert, found in tier_checksums(held))
        with pytest.raises(ValueError, match=r"experts \[1\] of layer 1 are in no tier"):
            list(at.tiers.blobs(1, [1]))


def test_addresses_tell_where_a_blob_is_now(small_pack: SmallPack) -> None:
    with moving(small_pack, 6, 6) as at:
        slot, place = at.tiers.address(1, 1), at.tiers.address(1, 3)
        assert slot != place and at.tiers.address(1, 5) is None
        at.exchange.swap(Swap((1, 3), (1, 1)))
        assert (at.tiers.address(1, 3), at.tiers.address(1, 1)) == (slot, place)
        at.exchange.swap(Swap((1, 5), (1, 3)))
        assert (at.tiers.address(1, 5), at.tiers.address(1, 3)) == (slot, None)
        assert at.tiers.take_moves() == [(1, 3), (1, 1), (1, 5)] and at.tiers.take_moves() == []


@settings(max_examples=40)
@given(choices=st.lists(st.tuples(st.integers(0, 2), st.sets(st.integers(0, 5), min_size=1)), max_size=30), every=st.integers(1, 5))
def test_heat_is_the_decayed_sum(choices: list[tuple[int, set[int]]], every: int) -> None:
    heat, total, folded = Heat(LAYERS, EXPERTS, 0.5), np.zeros(SHAPE, int), [np.zeros(SHAPE)]
    for number, (layer, experts) in enumerate(choices, 1):
        heat.add(layer, sorted(experts))
        for expert in experts:
            total[layer, expert] += 1
            folded[-1][layer, expert] += 1
        assert (heat.counted() == total).all()
        if number % every == 0:
            heat.fold()
            wanted = sum(0.5 ** (len(folded) - 1 - at) * part for at, part in enumerate(folded))
            np.testing.assert_allclose(heat.recent, wanted)
            folded.append(np.zeros(SHAPE))


def test_a_bad_start_is_mended(small_pack: SmallPack) -> None:
    """Slots that hold what nobody chooses: after some tokens the look-ups find theirs."""
    rng, heat = np.random.default_rng(1), Heat(LAYERS, EXPERTS, 0.9)
    with moving(small_pack, 6, 12) as at:
        hits = []
        for token in range(400):
            for layer in range(LAYERS):
                chosen = sorted({int(rng.choice([3, 4]))} if rng.random() < 0.9 else {int(rng.integers(6))})
                heat.add(layer, chosen)
                list(at.tiers.blobs(layer, chosen))
            hits.append(at.tiers.take_counters().vram_hits)
            if token % 8 == 7:
                heat.fold()
                at.move(heat.recent, 4)
        assert sum(hits[:8]) <= 6 and sum(hits[-100:]) > 0.85 * 300
        at.check()
