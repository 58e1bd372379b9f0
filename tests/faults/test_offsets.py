"""Products of ids and strides that no small type holds: offsets are plain ints from the index to the read."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from strata_recipes.pack.index import PackIndex
from strata_recipes.pack.layout import layer_experts
from strata_recipes.schedule.startup import extents, startup_schedule
from tests.files.test_readers import READERS
from tests.tiers.small_pack import FORMATS, GEOMETRY

BASES = [5 << 30, 2**31 - 4096, 2**32 + 12_288, 2**53 + 4096]
TYPES = [np.uint8, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def far(base: int) -> PackIndex:
    layers = layer_experts(GEOMETRY, FORMATS)
    return PackIndex("far", "id", GEOMETRY, tuple(dataclasses.replace(at, offset=at.offset + base) for at in layers), (), None)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("base", BASES)
def test_ids_may_be_small_and_products_not(base: int, kind: type[np.integer]) -> None:
    index = far(base)
    for layer, at in enumerate(index.layers):
        for expert in range(6):
            found = index.offset(layer, kind(expert))  # type: ignore[arg-type]
            assert type(found) is int and found == base + at.offset - base + expert * at.stride


def test_the_published_products() -> None:
    """70,000 x 40,960 in 32 bits is -1,427,767,296."""
    at = dataclasses.replace(far(0).layers[0], gate_bytes=40_960, up_bytes=0, down_bytes=0, offset=0)
    index = dataclasses.replace(far(0), layers=(at,))
    assert index.offset(0, np.int32(70_000)) == 2_867_200_000  # type: ignore[arg-type]


@pytest.mark.parametrize("base", BASES)
def test_the_reader_is_asked_for_these_ranges(base: int) -> None:
    index = far(base)
    order = [(layer, expert) for layer in range(3) for expert in range(6)]
    pairs = np.array(order, np.uint8)  # as a profile may hold them
    schedule = startup_schedule(index, [(layer, expert) for layer, expert in pairs], 5, 13)  # type: ignore[misc]
    asked = [(extent.offset, extent.num_bytes) for extent in extents([*schedule.fill, *schedule.copy], 1)]
    strides = [at.stride for at in index.layers for _ in range(6)]
    assert asked == [(base + sum(strides[:i]), stride) for i, stride in enumerate(strides)]
    assert all(type(number) is int for pair in asked for number in pair)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("base", BASES[:3])
def test_bytes_past_32_bits_of_a_sparse_file(reader: type, base: int, tmp_path: Path) -> None:
    index, path = far(base), tmp_path / "experts.bin"
    size, written = base + index.experts_file_bytes, {}
    with open(path, "wb") as file:
        file.truncate(size)
        for layer, expert in ((0, 0), (1, 3), (2, 5)):
            written[layer, expert] = os.urandom(index.layers[layer].blob_bytes)
            file.seek(index.offset(layer, expert))
            file.write(written[layer, expert])
    file = reader(path, size)
    for (layer, expert), wanted in written.items():
        found = np.zeros(len(wanted), np.uint8)
        file.read(index.offset(layer, expert), len(wanted), found)
        assert found.tobytes() == wanted
    file.close()
