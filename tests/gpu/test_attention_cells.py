"""Decode's attention on cells that are rounded, and on cells in two places."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kernels_numba import reference_decode_mixers as truth
from kernels_numba import reference_kv
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.gpu.attention_decode import attention_decode, attention_scratch
from kernels_numba.gpu.attention_inputs import attention_inputs
from kernels_numba.kv_formats import KV_OF_TYPE
from tests.gpu.split_cells import split
from tests.gpu.test_attention_decode import EPS, RELATIVE, distance, expected, layer_form, run
from tests.kernels.attention import Drawn, draw

ROUNDED = ["int8", "uint8"]  # the types of 8-bit and of 4-bit cells
CASES = [
    ((2, 1, 12, 256), 100_001, 512),
    ((2, 8, 12, 256), 2046, 512),
    ((2, 8, 3, 64), 60, 16),
    ((1, 8, 16, 200), 300, 40),
    ((3, 3, 1, 8), 40, 7),
]
FEW = [((1, 2, 2, 40), 38, 9), ((2, 1, 1, 64), 35, 3)]


def in_cells(drawn: Drawn, kv_type: str) -> Drawn:
    keys, values = (reference_kv.encode(part, KV_OF_TYPE[kv_type]).view(kv_type) for part in (drawn.keys, drawn.values))
    return dataclasses.replace(drawn, keys=keys, values=values)


@pytest.mark.parametrize("kv_type", ROUNDED)
@pytest.mark.parametrize(("shape", "start", "chosen"), FEW if SIMULATED else CASES)
def test_rounded_cells(shape: tuple[int, int, int, int], start: int, chosen: int, kv_type: str) -> None:
    drawn = in_cells(draw(shape, start, chosen), kv_type)
    assert distance(run(drawn), expected(drawn)) <= RELATIVE


@pytest.mark.parametrize("kv_type", list(KV_OF_TYPE))
@pytest.mark.parametrize("resident", [17] if SIMULATED else [1, 17, 60, 66])
def test_cells_in_two_places_give_the_same_bits(resident: int, kv_type: str) -> None:
    drawn = in_cells(draw((1, 2, 1, 32), 20, 3) if SIMULATED else draw((2, 8, 3, 64), 60, 16), kv_type)
    query, heads = layer_form(drawn)
    (rows, count, dim), context = query.shape, drawn.keys.shape[1]
    partial = to_device(np.zeros(attention_scratch(rows, count, dim, context, drawn.chosen.shape[1], drawn.block), np.float32))
    on = [to_device(part) for part in (query, drawn.chosen, heads, np.array([drawn.start]), np.zeros((rows, count * dim), np.float32))]
    keys, values = split(drawn.keys, resident), split(drawn.values, resident)
    attention_decode(on[0], keys, values, on[1], on[2], drawn.block, on[3], partial, on[4])
    whole = run(drawn)
    assert np.isfinite(whole).all() and to_host(on[4]).tobytes() == whole.tobytes()


@pytest.mark.parametrize("kv_type", list(KV_OF_TYPE))
@pytest.mark.parametrize(("rows", "dim", "place"), [(2, 40, 3)] if SIMULATED else [(8, 256, 11), (3, 64, 0), (2, 40, 5), (1, 96, 262_100)])
def test_inputs_of_rounded_cells_in_one_place_and_in_two(rows: int, dim: int, place: int, kv_type: str) -> None:
    """Values to the bit; keys and queries but for the last bits of a cosine, which move a code by one now and then."""
    rng, half, count, kv_heads = np.random.default_rng(dim), 8, 2, 1
    heads, q_norm, k_norm = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, 6 * dim), (dim,), (dim,)))
    turns, at = (1 / 1e4 ** (np.arange(half) / half)).astype(np.float32), np.array([place])
    blank = np.zeros((kv_heads, place + rows + 2, dim), np.float32)
    cells, name = reference_kv.encode(blank, KV_OF_TYPE[kv_type]).view(kv_type), KV_OF_TYPE[kv_type]
    want = np.zeros((rows, count, dim), np.float32), cells.copy(), cells.copy()
    truth.attention_inputs(heads, q_norm, k_norm, EPS, turns, at, *want)
    on = [to_device(part) for part in (heads, q_norm, k_norm, turns, at, np.zeros_like(want[0]), cells, cells)]
    attention_inputs(on[0], on[1], on[2], EPS, on[3], on[4], on[5], on[6], on[7])
    assert distance(to_host(on[5]), want[0]) <= RELATIVE
    assert to_host(on[7]).tobytes() == want[2].tobytes()
    got_keys, want_keys = (reference_kv.decode(part.view(np.uint8), dim, name) for part in (to_host(on[6]), want[1]))
    step = {"fp32": 1e-5, "fp16": 1e-3, "int8": 1 / 127, "q4_0": 1 / 8}[name] * np.abs(want_keys).max()
    assert np.abs(got_keys - want_keys).max() <= 1.01 * step and (np.abs(got_keys - want_keys) > 1e-4).mean() < 0.02
    keys, values = split(cells, place + 1), split(cells, place + 1)
    attention_inputs(on[0], on[1], on[2], EPS, on[3], on[4], on[5], keys, values)
    assert keys.joined().tobytes() == to_host(on[6]).tobytes() and values.joined().tobytes() == want[2].tobytes()
