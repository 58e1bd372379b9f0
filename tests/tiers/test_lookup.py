"""Every expert's bytes come out the same whatever tier holds it, in ascending order, and are counted where they were."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata_recipes.errors import DeviceError, FileError
from strata_recipes.files.buffered import BufferedFile
from strata_recipes.files.mapped import MappedFile
from strata_recipes.files.unbuffered_linux import DirectFile
from strata_recipes.schedule.startup import default_order, startup_schedule
from strata_recipes.tiers.blobs import BlobTier
from strata_recipes.tiers.file_tier import FileTier, MappedTier, StagedTier
from strata_recipes.tiers.ledger import Ledger
from strata_recipes.tiers.lookup import ExpertTiers
from strata_recipes.tiers.ram import ram_blobs
from strata_recipes.tiers.stager import Stager
from strata_recipes.tiers.verify import blob_check, tier_checksums
from strata_recipes.tiers.vram import vram_slots
from tests.tiers.small_pack import SmallPack

STRIDE = 12288  # of the largest blob


def mapped(pack: SmallPack) -> FileTier:
    return MappedTier(MappedFile(pack.path, pack.index.experts_file_bytes), pack.index)


def staged(file_class: type[BufferedFile] | type[DirectFile], buffers: int, threads: int) -> Callable[[SmallPack], FileTier]:
    def build(pack: SmallPack) -> FileTier:
        file = file_class(pack.path, pack.index.experts_file_bytes)
        largest = max(at.stride for at in pack.index.layers)
        return StagedTier(file, Stager(file, buffers, largest, threads, poison=True), pack.index)

    return build


FILE_TIERS = [mapped, staged(DirectFile, 1, 1), staged(DirectFile, 3, 2), staged(BufferedFile, 16, 4)]


def tiers_of(pack: SmallPack, slots: int, blobs: int, file_tier: FileTier | None, ram_start: int | None = None) -> ExpertTiers:
    schedule = startup_schedule(pack.index, default_order(pack.index), slots, blobs, ram_start)
    ledger = Ledger(10**6, 10**6)
    vram = vram_slots(schedule.fill, ledger, poison=True)
    ram = ram_blobs(schedule.copy, ledger, slice_bytes=20_000, poison=True)
    for tier in (vram, ram):
        for layer, expert in tier.pairs():
            tier.place(layer, expert)[:] = pack.blobs[layer, expert]
    return ExpertTiers(pack.index, vram, ram, file_tier)


@pytest.mark.parametrize("file_tier", FILE_TIERS)
@pytest.mark.parametrize(("slots", "blobs"), [(0, 0), (1, 0), (0, 1), (4, 7), (17, 0), (5, 13), (18, 0), (0, 18)])
def test_the_same_bytes_from_every_tier(file_tier: Callable[[SmallPack], FileTier], slots: int, blobs: int, small_pack: SmallPack) -> None:
    tiers = tiers_of(small_pack, slots, blobs, file_tier(small_pack))
    for layer in range(3):
        for asked in ([0, 1, 2, 3, 4, 5], [5], [1, 4], []):
            given = []
            for expert, blob in tiers.blobs(layer, asked):
                given.append(expert)
                np.testing.assert_array_equal(blob, small_pack.blobs[layer, expert])
                assert not blob.flags.writeable
            assert given == asked
    counters, rest = tiers.take_counters(), 18 - slots - blobs
    assert counters.vram_hits + counters.ram_hits + counters.file_hits == 27
    assert len(counters.touched) == rest
    assert tiers.file_bytes(counters.touched) == tiers.file_bytes() <= counters.file_bytes
    order = default_order(small_pack.index)[slots + blobs :]
    assert tiers.file_bytes() == sum(small_pack.index.layers[layer].stride for layer, _ in order)
    assert tiers.take_counters().file_bytes == 0
    tiers.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("stager-")]


@settings(max_examples=30, deadline=None)
@given(
    slots=st.integers(0, 18),
    buffers=st.integers(1, 16),
    threads=st.integers(1, 16),
    visits=st.lists(st.sets(st.integers(0, 5)), max_size=8),
)
def test_any_number_of_slots_buffers_and_threads(
    small_pack: SmallPack, slots: int, buffers: int, threads: int, visits: list[set[int]]
) -> None:
    tiers = tiers_of(small_pack, slots, 0, staged(DirectFile, buffers, threads)(small_pack))
    for number, visit in enumerate(visits):
        for expert, blob in tiers.blobs(number % 3, sorted(visit)):
            np.testing.assert_array_equal(blob, small_pack.blobs[number % 3, expert])
    tiers.close()


@pytest.mark.parametrize("file_tier", FILE_TIERS)
def test_a_visit_left_early_gives_its_buffers_back(file_tier: Callable[[SmallPack], FileTier], small_pack: SmallPack) -> None:
    tiers = tiers_of(small_pack, 0, 0, file_tier(small_pack))
    for _ in range(40):
        visit = tiers.blobs(1, [0, 1, 2, 3, 4, 5])
        next(visit)
        next(visit)
        visit.close()  # type: ignore[attr-defined]
    for expert, blob in tiers.blobs(2, [0, 5]):
        np.testing.assert_array_equal(blob, small_pack.blobs[2, expert])
    tiers.close()


def test_the_file_is_read_once_a_visit_and_residents_never(small_pack: SmallPack) -> None:
    file = DirectFile(small_pack.path, small_pack.index.experts_file_bytes)
    tiers = tiers_of(small_pack, 4, 7, StagedTier(file, Stager(file, 2, STRIDE * 3, 2), small_pack.index))
    for layer in range(3):
        for _ in tiers.blobs(layer, range(6)):
            pass
    counters = tiers.take_counters()
    assert file.counters.reads == counters.file_hits == 7
    assert file.counters.bytes_read == counters.file_bytes == tiers.file_bytes()
    assert (counters.vram_hits, counters.ram_hits) == (4, 7)
    tiers.close()


def test_reading_starts_before_the_resident_blobs_are_used(small_pack: SmallPack) -> None:
    file = DirectFile(small_pack.path, small_pack.index.experts_file_bytes)
    tiers = tiers_of(small_pack, 12, 0, StagedTier(file, Stager(file, 2, STRIDE * 3, 2), small_pack.index))
    visit = tiers.blobs(0, [0, 1, 2, 3, 4, 5])  # 0 to 3 have slots
    assert next(visit)[0] == 0
    for _ in range(1000):  # only a failure waits long
        if file.counters.reads == 2:
            break
        threading.Event().wait(0.01)
    assert file.counters.reads == 2
    tiers.close()


def test_experts_out_of_order_or_in_no_tier_are_a_mistake(small_pack: SmallPack) -> None:
    tiers = tiers_of(small_pack, 1, 0, None)
    for asked in ([1, 0], [2, 2]):
        with pytest.raises(ValueError, match="ascending"):
            list(tiers.blobs(0, asked))
    with pytest.raises(ValueError, match=r"experts \[3\] of layer 1 are in no tier"):
        list(tiers.blobs(1, [3]))
    tiers.close()


def test_slots_have_their_own_layers_size_and_nothing_is_padding(small_pack: SmallPack) -> None:
    schedule = startup_schedule(small_pack.index, default_order(small_pack.index), 7, 4)
    payload = sum(copy.num_bytes for copy in schedule.fill)
    ledger = Ledger(payload, sum(copy.num_bytes for copy in schedule.copy))
    vram = vram_slots(schedule.fill, ledger)
    ram = ram_blobs(schedule.copy, ledger)
    assert ledger.use().vram.used_bytes == payload == vram.num_bytes
    for tier in (vram, ram):
        spans = sorted((tier.place(*pair).ctypes.data, tier.place(*pair).size) for pair in tier.pairs())
        assert all(a + n <= b for (a, n), (b, _) in zip(spans, spans[1:], strict=False))
    vram.close()
    ram.close()
    assert ledger.use().vram.used_bytes == ledger.use().ram.used_bytes == 0


def test_the_ledger_is_asked_before_anything_is_allocated(small_pack: SmallPack, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = startup_schedule(small_pack.index, default_order(small_pack.index), 7, 0)
    payload = sum(copy.num_bytes for copy in schedule.fill)

    def refused(*args: object, **more: object) -> None:
        raise AssertionError("allocated first")

    monkeypatch.setattr("strata_recipes.tiers.blobs.Arena", refused)
    with pytest.raises(DeviceError, match="1 are missing"):
        vram_slots(schedule.fill, Ledger(payload - 1, 0))
    ledger = Ledger(payload, 0)
    with pytest.raises(AssertionError):
        vram_slots(schedule.fill, ledger)
    assert ledger.use().vram.used_bytes == 0  # a failed allocation leaves nothing taken


def test_freed_memory_is_poisoned(small_pack: SmallPack) -> None:
    tiers = tiers_of(small_pack, 18, 0, None)
    held = tiers.vram.blob(0, 0)
    tiers.close()
    assert (held == 0xFF).all()


def test_arenas_are_cut_into_slices(small_pack: SmallPack) -> None:
    schedule = startup_schedule(small_pack.index, default_order(small_pack.index), 0, 18)
    tier = BlobTier(schedule.copy, Ledger(0, 10**6), "ram", "x", alignment=4096, slice_bytes=40_000, poison=False)
    sizes = [len(part.bytes) for part in tier._arena._slices]
    assert len(sizes) > 2 and max(sizes) <= 40_000
    assert sum(len(part.bytes) for part in tier._arena._slices) == tier.num_bytes
    tier.close()


def test_checksums_find_a_changed_and_a_swapped_blob(small_pack: SmallPack) -> None:
    check = blob_check(small_pack.path, small_pack.index, small_pack.checksums)
    for (layer, expert), blob in small_pack.blobs.items():
        check(layer, expert, blob)
    changed = small_pack.blobs[1, 4].copy()
    changed[-1] ^= 1
    with pytest.raises(FileError) as refused:
        check(1, 4, changed)
    for part in (
        str(small_pack.path),
        "expert 4 of layer 1",
        f"offset {small_pack.index.offset(1, 4)}",
        f"{int(small_pack.checksums[1, 4]):016x}",
    ):
        assert part in str(refused.value)
    with pytest.raises(FileError):
        check(0, 1, small_pack.blobs[0, 2])


@pytest.mark.parametrize("file_tier", FILE_TIERS)
def test_a_file_tier_blob_is_checked_on_its_way(file_tier: Callable[[SmallPack], FileTier], small_pack: SmallPack, tmp_path: Path) -> None:
    path = tmp_path / "experts.bin"
    shutil.copy(small_pack.path, path)
    with open(path, "r+b") as file:
        file.seek(small_pack.index.offset(2, 3) + 5)
        file.write(b"\x00\x01\x02\x03")
    pack = SmallPack(path, small_pack.index, small_pack.blobs, small_pack.checksums)
    whole = tiers_of(pack, 0, 0, file_tier(pack))
    tiers = ExpertTiers(pack.index, whole.vram, whole.ram, whole._file, blob_check(path, pack.index, pack.checksums))
    with pytest.raises(FileError, match="expert 3 of layer 2"):
        for expert, _ in tiers.blobs(2, range(6)):
            assert expert < 3
    tiers.close()


def test_a_tiers_checksums_depend_on_its_blobs_alone(small_pack: SmallPack) -> None:
    """The same set of blobs in VRAM or RAM, at other places: the same sums; another set, or one bit: others."""
    in_vram, in_ram = tiers_of(small_pack, 6, 0, None), tiers_of(small_pack, 0, 6, None)
    wanted = [(layer, expert, int(small_pack.checksums[layer, expert])) for layer in range(3) for expert in range(2)]
    assert tier_checksums(in_vram.vram) == tier_checksums(in_ram.ram) == wanted
    assert tier_checksums(in_vram.vram) != tier_checksums(tiers_of(small_pack, 7, 0, None).vram)
    in_ram.ram.place(*in_ram.ram.pairs()[2])[0] ^= 1
    assert tier_checksums(in_vram.vram) != tier_checksums(in_ram.ram)
