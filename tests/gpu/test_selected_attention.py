"""Attention over selected tokens, against its definition: every place of a query in its block, keys few and many, every KV format."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kernels_numba import reference_kv, reference_ops
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.gpu.selected_attention import selected_attention
from kernels_numba.kv_formats import KV_OF_TYPE
from tests.gpu.split_cells import split
from tests.kernels.attention import Drawn, draw

RELATIVE = 1e-5
# (K, T, G, D), position of the first token, blocks chosen
CASES = [
    ((2, 6, 3, 32), 24, 3),  # the tail after the last whole block has 1, 2, 3 and 0 tokens
    ((1, 3, 1, 32), 0, 2),  # the first tokens of all
    ((2, 9, 3, 64), 10, 3),  # from reading all to reading some
    ((1, 5, 2, 32), 300, 16),  # 64 chosen tokens: a tile and then the tail
    ((1, 2, 16, 96), 300, 40),
    ((2, 40, 12, 256), 2030, 512),
    ((2, 9, 12, 256), 9000, 512),
    ((1, 700, 4, 128), 0, 4),
]
SMALL = [((1, 2, 3, 32), 11, 2), ((1, 1, 2, 32), 75, 17)]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("shape", "start", "chosen"), SMALL if SIMULATED else CASES)
def test_selected(shape: tuple[int, int, int, int], start: int, chosen: int, dtype: type) -> None:
    drawn = draw(shape, start, chosen, dtype)
    check(run(drawn), drawn)


@pytest.mark.parametrize("name", ["int8", "q4_0"])
@pytest.mark.parametrize(("shape", "start", "chosen"), [((1, 2, 3, 32), 11, 2), ((1, 1, 2, 64), 75, 17)] if SIMULATED else CASES)
def test_rounded_keys_and_values(shape: tuple[int, int, int, int], start: int, chosen: int, name: str) -> None:
    exact = draw(shape, start, chosen)
    cells = [reference_kv.encode(part, name) for part in (exact.keys, exact.values)]
    keys, values = (reference_kv.decode(part, shape[3], name) for part in cells)
    in_cells = [part.view({"int8": np.int8, "q4_0": np.uint8}[name]) for part in cells]
    stored = dataclasses.replace(exact, keys=in_cells[0], values=in_cells[1])
    check(run(stored), dataclasses.replace(exact, keys=keys, values=values))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint8])
@pytest.mark.parametrize("resident", [10] if SIMULATED else [1, 3, 150, 157, 219])
def test_cells_in_two_places_give_the_same_bits(resident: int, dtype: type) -> None:
    drawn = draw((1, 2, 2, 32), 11, 2) if SIMULATED else draw((2, 70, 3, 64), 150, 2)
    name = KV_OF_TYPE[np.dtype(dtype).name]
    cells = [reference_kv.encode(part, name).view(dtype) for part in (drawn.keys, drawn.values)]
    whole = run(dataclasses.replace(drawn, keys=cells[0], values=cells[1]))
    query, chosen, out = to_device(drawn.query), to_device(drawn.chosen), to_device(np.zeros_like(drawn.query))
    selected_attention(query, split(cells[0], resident), split(cells[1], resident), chosen, drawn.block, drawn.start, out)
    assert np.isfinite(whole).all() and to_host(out).tobytes() == whole.tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("block", [1, 2, 5, 8, 64])
def test_any_block(block: int) -> None:
    drawn = draw((2, 70, 3, 64), 150, 2, block=block)
    check(run(drawn), drawn)


@pytest.mark.parametrize("start", [5] if SIMULATED else [0, 5, 63, 64, 2040])
def test_reading_all(start: int) -> None:
    drawn = draw((1, 2, 2, 32) if SIMULATED else (2, 130, 12, 256), start, 3)
    every = reference_ops.selected_attention(drawn.query, drawn.keys, drawn.values, None, 4, start)
    assert distance(run(drawn, use_choice=False), every) <= RELATIVE


@pytest.mark.gpu
def test_ids_of_64_bits() -> None:
    drawn = draw((2, 9, 3, 64), 110, 3)
    wide = Drawn(drawn.query, drawn.keys, drawn.values, drawn.chosen.astype(np.int64), 4, 110)
    assert (run(wide) == run(drawn)).all()


@pytest.mark.gpu
@pytest.mark.parametrize("spread", [0.0, 30.0, 3000.0])
def test_scores_that_are_equal_or_far_apart(spread: float) -> None:
    drawn = draw((2, 9, 12, 256), 3000, 512, spread=spread)
    assert distance(run(drawn), wanted(drawn)) <= RELATIVE * (1 + spread)  # scores are off in proportion to their size


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_rows_bits_do_not_depend_on_the_rows_beside_it(dtype: type) -> None:
    drawn = draw((2, 300, 12, 256), 2000, 512, dtype)
    whole = run(drawn)
    for at, to in ((0, 1), (17, 18), (255, 300), (3, 77)):
        assert (run(drawn.part(at, to)).view(np.uint32) == whole[:, at:to].view(np.uint32)).all(), (at, to)


@pytest.mark.gpu
def test_a_nan_is_not_lost_and_reaches_no_other_row() -> None:
    drawn = draw((1, 2, 2, 32), 11, 2)
    drawn.query[0, 1, 0, 3] = np.nan
    got = run(drawn)
    assert np.isnan(got[0, 1, 0]).all() and np.isfinite(got[0, 0]).all() and np.isfinite(got[0, 1, 1]).all()


def test_no_tokens_launch_nothing() -> None:
    drawn = draw((2, 4, 3, 32), 20, 3).part(0, 0)
    assert run(drawn).shape == (2, 0, 3, 32)


def test_wrong_arguments_are_refused() -> None:
    drawn = draw((1, 2, 2, 32), 11, 2)
    with pytest.raises(ValueError, match="positions 40 to 42 of a context of 16"):
        run(Drawn(drawn.query, drawn.keys, drawn.values, drawn.chosen, 4, 40))
    with pytest.raises(ValueError, match="keys are float64: wanted float32, float16, int8, uint8"):
        run(Drawn(drawn.query, drawn.keys.astype(np.float64), drawn.values, drawn.chosen, 4, 11))
    with pytest.raises(ValueError, match="of 24 values: wanted at most 16, and a multiple of 32 to 256"):
        run(draw((1, 2, 2, 24), 11, 2))
    with pytest.raises(
        ValueError, match="values are fp16 for 16 tokens, 16 of them near: wanted fp32 for 16, 16 of them near, as keys are"
    ):
        run(Drawn(drawn.query, drawn.keys, drawn.values.astype(np.float16), drawn.chosen, 4, 11))


def run(drawn: Drawn, use_choice: bool = True) -> np.ndarray:
    out = to_device(np.full(drawn.query.shape, -7, np.float32))
    query, keys, values, chosen = (to_device(part) for part in (drawn.query, drawn.keys, drawn.values, drawn.chosen))
    selected_attention(query, keys, values, chosen if use_choice else None, drawn.block, drawn.start, out)
    return to_host(out)


def wanted(drawn: Drawn) -> np.ndarray:
    return reference_ops.selected_attention(drawn.query, drawn.keys, drawn.values, drawn.chosen, drawn.block, drawn.start)


def check(got: np.ndarray, drawn: Drawn) -> None:
    assert distance(got, wanted(drawn)) <= RELATIVE


def distance(got: np.ndarray, want: np.ndarray) -> float:
    """The largest relative L2 of a row."""
    return float((np.linalg.norm(got - want, axis=-1) / np.linalg.norm(want, axis=-1)).max())
