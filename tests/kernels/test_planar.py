"""Planar order, and the fields that it is made of."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba.formats import FORMATS
from kernels_numba.repack import repack, unpack
from tests.kernels.blocks import random_blocks


@pytest.mark.parametrize("name", list(FORMATS))
def test_unpack_is_the_inverse(name: str) -> None:
    data = random_blocks(name, 37, seed=1)
    assert (unpack(repack(data, name), name) == data).all()
    assert repack(data, name).size == data.size


@pytest.mark.parametrize("name", list(FORMATS))
def test_fields_fill_a_block_and_planes_start_aligned(name: str) -> None:
    form = FORMATS[name]
    assert sum(size for _, size in form.fields) == form.block_bytes
    assert sorted(form.planes) == sorted(form.fields)
    before = 0
    for _, size in form.planes:  # a plane starts at before * blocks: for any number of blocks at a multiple of what it is loaded by
        assert before % min(size & -size, 16) == 0 or size == 12
        before += size


def test_one_tensor_by_hand() -> None:
    data = np.arange(36, dtype=np.uint8)  # two Q2_0 blocks: scale, then 16 bytes of codes
    assert repack(data, "Q2_0").tolist() == [*range(2, 18), *range(20, 36), 0, 1, 18, 19]
    assert (repack(np.empty(0, np.uint8), "Q2_0")).size == 0
    with pytest.raises(ValueError, match="not whole Q2_0 blocks of 18 bytes"):
        repack(data[:35], "Q2_0")
