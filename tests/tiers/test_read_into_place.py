"""Experts read into places: the pack's bytes whatever tier holds them, counted as blobs are, and errors that name where."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from strata_recipes.errors import FileError
from strata_recipes.files.at_once import ReadsAtOnce
from strata_recipes.files.buffered import BufferedFile, ReadAt
from strata_recipes.files.mapped import MappedFile
from strata_recipes.files.pace import Pace
from strata_recipes.files.source import Bytes
from strata_recipes.files.unbuffered_linux import DirectFile
from strata_recipes.tiers.file_tier import FileTier, MappedTier
from strata_recipes.tiers.lookup import ExpertTiers
from strata_recipes.tiers.verify import blob_check
from tests.tiers.small_pack import SmallPack
from tests.tiers.test_lookup import mapped, staged, tiers_of


def at_once(pack: SmallPack, read_at: ReadAt | None = None) -> MappedTier:
    source = MappedFile(pack.path, pack.index.experts_file_bytes)
    size, counters = pack.index.experts_file_bytes, source.counters
    reads = ReadsAtOnce(lambda: BufferedFile(pack.path, size, read_at=read_at, apart=True, counters=counters), 3)
    return MappedTier(source, pack.index, reads)


WAYS: list[Callable[[SmallPack], FileTier]] = [at_once, mapped, staged(DirectFile, 2, 2)]


def places(pack: SmallPack, number: int) -> list[Bytes]:
    return [np.full(pack.index.max_blob_bytes + 4096, 0xAB, np.uint8) for _ in range(number)]


def check(pack: SmallPack, layer: int, experts: Sequence[int], read: list[Bytes]) -> None:
    for expert, place in zip(experts, read, strict=True):
        blob = pack.blobs[layer, expert]
        np.testing.assert_array_equal(place[: blob.size], blob)
        assert (place[-4096:] == 0xAB).all(), "past the largest blob nothing is written"


@pytest.fixture
def own(small_pack: SmallPack, tmp_path: Path) -> SmallPack:
    """A copy that may be spoilt."""
    return SmallPack(Path(shutil.copy(small_pack.path, tmp_path)), small_pack.index, small_pack.blobs, small_pack.checksums)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("blobs", [0, 1, 7, 18])
@pytest.mark.parametrize("asked", [range(6), [5], [1, 4], []])
def test_the_packs_bytes_counted_as_blobs_are(
    way: Callable[[SmallPack], FileTier], blobs: int, asked: list[int], small_pack: SmallPack
) -> None:
    tiers = tiers_of(small_pack, 0, blobs, way(small_pack))
    found = []
    for layer in range(3):
        read = places(small_pack, len(asked))
        tiers.read(layer, asked, read)
        check(small_pack, layer, asked, read)
    found.append(tiers.take_counters())
    for layer in range(3):
        assert [expert for expert, _ in tiers.blobs(layer, asked)] == list(asked)
    found.append(tiers.take_counters())
    assert found[0] == found[1]
    assert found[0].ram_hits + found[0].file_hits == 3 * len(asked)
    tiers.close()


def test_the_handles_counters_are_the_mappings(small_pack: SmallPack) -> None:
    tier = at_once(small_pack)
    tiers = tiers_of(small_pack, 0, 2, tier)
    held = [expert for expert in range(6) if (0, expert) in tiers.ram]
    tiers.read(0, range(6), places(small_pack, 6))
    counters = tier._file.counters
    assert held and counters.reads == 6 - len(held)
    assert counters.bytes_read == counters.reads * small_pack.index.layers[0].blob_bytes
    tiers.close()


def test_ram_blobs_go_over_the_link_and_need_no_file(small_pack: SmallPack) -> None:
    whole, link = tiers_of(small_pack, 0, 18, None), Pace(1e12)
    tiers = ExpertTiers(small_pack.index, whole.vram, whole.ram, None, up=link)
    read = places(small_pack, 3)
    tiers.read(1, [0, 2, 5], read)
    check(small_pack, 1, [0, 2, 5], read)
    assert link.busy_s * 1e12 == pytest.approx(3 * small_pack.index.layers[1].blob_bytes)
    tiers.close()


def test_mistakes_are_refused(small_pack: SmallPack) -> None:
    tiers = tiers_of(small_pack, 0, 0, None)
    for experts in ([1, 0], [2, 2]):
        with pytest.raises(ValueError, match="ascending"):
            tiers.read(0, experts, places(small_pack, 2))
    with pytest.raises(ValueError, match=r"experts \[3\] of layer 1 are in no tier"):
        tiers.read(1, [3], places(small_pack, 1))
    with pytest.raises(ValueError, match=r"shorter|longer"):
        tiers.read(1, [3], places(small_pack, 2))
    tiers.close()


def test_a_failing_read_names_the_blob_and_counts_nothing(small_pack: SmallPack) -> None:
    bad, calls = small_pack.index.offset(1, 3), [0]

    def failing(handle: int, buffers: Sequence[memoryview], at: int) -> int:
        if at == bad and not calls[0]:
            calls[0] += 1
            raise OSError(5, os.strerror(5))
        return os.preadv(handle, buffers, at)

    tiers = tiers_of(small_pack, 0, 0, at_once(small_pack, failing))
    read, size = places(small_pack, 6), small_pack.index.layers[1].blob_bytes
    with pytest.raises(FileError) as caught:
        tiers.read(1, range(6), read)
    for part in (str(small_pack.path), f"{size} bytes", f"offset {bad} ", "errno 5"):
        assert part in str(caught.value)
    others = [expert for expert in range(6) if expert != 3]
    check(small_pack, 1, others, [read[expert] for expert in others])
    assert tiers.take_counters().file_hits == 0
    tiers.read(1, range(6), read)
    check(small_pack, 1, range(6), read)
    tiers.close()


def test_a_file_cut_between_two_reads_is_told(own: SmallPack) -> None:
    tiers, size = tiers_of(own, 0, 0, at_once(own)), own.index.experts_file_bytes
    tiers.read(0, range(6), places(own, 6))
    os.truncate(own.path, own.index.offset(2, 3) + 100)
    with pytest.raises(FileError, match=f"experts.bin has {own.index.offset(2, 3) + 100} bytes, the pack's index wants {size}"):
        tiers.read(2, [3], places(own, 1))
    tiers.close()


def test_a_file_cut_under_a_read_is_told_with_the_blobs_offset(own: SmallPack) -> None:
    offset, size = own.index.offset(2, 3), own.index.layers[2].blob_bytes
    all_begun = threading.Barrier(3)

    def cutting(handle: int, buffers: Sequence[memoryview], at: int) -> int:
        if at in [own.index.offset(2, expert) for expert in (3, 4, 5)]:  # a short read goes on elsewhere
            all_begun.wait(60)
        os.truncate(own.path, offset + 100)
        return os.preadv(handle, buffers, at)

    tiers = tiers_of(own, 0, 0, at_once(own, cutting))
    with pytest.raises(FileError, match=f"ended 100 bytes into a read of {size} bytes at offset {offset}: it was cut"):
        tiers.read(2, [3, 4, 5], places(own, 3))
    tiers.close()


@pytest.mark.parametrize("way", WAYS)
def test_every_blob_is_checked_where_asked(way: Callable[[SmallPack], FileTier], own: SmallPack) -> None:
    with open(own.path, "r+b") as file:
        file.seek(own.index.offset(2, 4) + 5)
        file.write(b"\x00\x01\x02\x03")
    whole = tiers_of(own, 0, 0, way(own))
    tiers = ExpertTiers(own.index, whole.vram, whole.ram, whole._file, blob_check(own.path, own.index, own.checksums))
    tiers.read(2, [0, 3, 5], places(own, 3))
    with pytest.raises(FileError, match="expert 4 of layer 2"):
        tiers.read(2, range(6), places(own, 6))
    tiers.close()
