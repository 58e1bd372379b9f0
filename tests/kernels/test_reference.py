"""The numpy truth against the public `gguf` package, and Q2_0, which that package does not know, against hand-made blocks."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from kernels_numba.formats import FORMATS
from kernels_numba.reference import dequantize
from tests.kernels.blocks import random_blocks

EDGE_SCALES = [0.0, -0.0, 6e-8, 6.1e-5, -6e-8, 1.0, 65504.0, -65504.0]


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"Q2_0"}))
def test_equals_the_gguf_package_bit_by_bit(name: str) -> None:
    data = random_blocks(name, 997, seed=FORMATS[name].ggml_type)
    theirs = quants.dequantize(data.reshape(1, -1), GGMLQuantizationType[name]).reshape(-1)
    ours = dequantize(data, name)
    assert ours.dtype == np.float32 and ours.size == 997 * FORMATS[name].block_values
    assert (ours.view(np.uint32) == np.ascontiguousarray(theirs, np.float32).view(np.uint32)).all()


def test_every_code_of_q2_0_lands_where_it_was_put() -> None:
    codes = np.random.default_rng(1).integers(0, 4, (8, 64), dtype=np.uint8)
    blocks = np.zeros((8, 18), np.uint8)
    blocks[:, :2] = np.array(EDGE_SCALES, np.float16).reshape(-1, 1).view(np.uint8)
    for value in range(64):
        blocks[:, 2 + value // 4] |= codes[:, value] << (2 * (value % 4))
    wanted = np.array(EDGE_SCALES, np.float16).astype(np.float32)[:, None] * (codes.astype(np.float32) - 1)
    assert (dequantize(blocks.reshape(-1), "Q2_0").view(np.uint32) == wanted.reshape(-1).view(np.uint32)).all()


def test_one_q2_0_block_by_hand() -> None:
    block = np.array([0x00, 0x38] + [0b11100100] + [0b01010101] * 15, np.uint8)  # d = 0.5
    assert dequantize(block, "Q2_0").tolist() == [-0.5, 0.0, 0.5, 1.0] + [0.0] * 60


@pytest.mark.parametrize("name", ["Q2_0", "Q8_0", "IQ2_S"])
def test_a_part_of_a_block_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"not whole {name} blocks of {FORMATS[name].block_bytes} bytes"):
        dequantize(np.zeros(FORMATS[name].block_bytes + 1, np.uint8), name)
