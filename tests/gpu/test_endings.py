"""Sums that are taken on in the kernel that makes them: near what the truth makes of plain columns; the same bits in any company."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernels_numba import reference_decode, reference_ops
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.endings import Columns, Ending, Gates, Mixed
from kernels_numba.gpu.dense_matvec import Stack, dense_matvec
from kernels_numba.gpu.dense_matvec_q8 import dense_matvec_q8
from tests.gpu.test_dense_matvec import made, rows_of, same

Product = Callable[[np.ndarray, Stack, Ending], None]


def float_rows(x: np.ndarray, stack: Stack, to: Ending) -> None:
    dense_matvec(to_device(x), stack, to)


def eight_bit_rows(x: np.ndarray, stack: Stack, to: Ending) -> None:
    dense_matvec_q8(*(to_device(part) for part in reference_ops.quantize_rows(x)), stack, to)


# product, format, width
PRODUCTS = [(float_rows, "Q8_0", 320), (float_rows, "F32", 20), (eight_bit_rows, "Q8_0", 320)]
PRODUCTS += [] if SIMULATED else [(float_rows, "Q8_0", 10_240), (float_rows, "Q8_0", 2560), (eight_bit_rows, "Q4_0", 2560)]
ROWS = (2,) if SIMULATED else (1, 3, 8, 9)
each_product = pytest.mark.parametrize(("product", "name", "width"), PRODUCTS, ids=[f"{p.__name__} {n} {w}" for p, n, w in PRODUCTS])
CLOSE = 4e-6  # one exp and one division of float32, and their roundings


@each_product
@pytest.mark.parametrize("injects", [True, False])
def test_gates(product: Product, name: str, width: int, injects: bool) -> None:
    rank, streams = (9, 4) if SIMULATED else (37, 4)
    sizes = (rank, streams) if injects else (rank,)
    held = made(name, width, sizes, False)
    for rows in ROWS:
        x = 30 * rows_of(rows, width)
        act, strengths = gated(product, x, held.stack, rank, streams, injects)
        sums, (wanted, given) = columns(product, x, held.stack), arrays((rows, rank), (rows, strengths.shape[1]))
        reference_decode.ended(sums, Gates(wanted, given, 4))
        assert np.allclose(act, wanted, rtol=CLOSE, atol=1e-35) and np.allclose(strengths, given, rtol=CLOSE, atol=1e-35)
        alone = gated(product, x[-1:], held.stack, rank, streams, injects)
        assert same(alone[0], act[-1:]) and same(alone[1], strengths[-1:])


@each_product
@pytest.mark.parametrize(("streams", "hidden"), [(3, 5)] if SIMULATED else [(4, 2560), (1, 7), (3, 130)])
def test_streams_are_mixed(product: Product, name: str, width: int, streams: int, hidden: int) -> None:
    held = made(name, width, (streams * hidden,), False)
    for rows in ROWS:
        x, normed = rows_of(rows, width), rows_of(rows, streams * hidden)
        (wanted,) = arrays((rows, hidden))
        got = mixed(product, x, held.stack, normed, hidden)
        reference_decode.ended(columns(product, x, held.stack), Mixed(normed, wanted))
        assert np.allclose(got, wanted, rtol=0, atol=CLOSE * np.abs(normed).max())
        assert same(mixed(product, x[-1:], held.stack, normed[-1:], hidden), got[-1:])


def test_gates_of_two_stacks_are_those_of_one() -> None:
    """Matrices of two formats, say: the later columns follow the earlier ones."""
    x, both = rows_of(2, 320), made("Q8_0", 320, (6, 3), False)
    want = gated(float_rows, x, both.stack, 6, 3)
    act, strengths = (to_device(part) for part in arrays((2, 6), (2, 3)))
    to, first = Gates(act, strengths, 3), made("Q8_0", 320, (6,), False, seed=0)
    second = made("Q8_0", 320, (3,), False, seed=1)
    float_rows(x, second.stack, to.after(6))
    assert np.isnan(to_host(act)).all()
    float_rows(x, first.stack, to.after(0))
    assert same(to_host(act), want[0]) and same(to_host(strengths), want[1])


def test_a_nan_in_a_row_shows_there_alone() -> None:
    x, held = rows_of(2, 320), made("Q8_0", 320, (6,), False)
    x[1, 5] = np.nan
    for out in (gated(float_rows, x, held.stack, 6, 4, False)[0], mixed(float_rows, x, held.stack, rows_of(2, 6), 3)):
        assert np.isfinite(out[0]).all() and np.isnan(out[1]).all()


def test_what_does_not_fit_is_refused() -> None:
    x, held = rows_of(1, 320), made("Q8_0", 320, (6,), False)
    with pytest.raises(ValueError, match="1 rows of 6 sums mix into 1 rows of 4: wanted a whole number of streams to 8"):
        mixed(float_rows, x, held.stack, rows_of(1, 6), 4)
    with pytest.raises(ValueError, match="1 rows of 6 sums mix into 1 rows of 2"):
        mixed(float_rows, x, held.stack, rows_of(1, 8), 2)
    with pytest.raises(ValueError, match="1 rows of 6 outputs from column 0 on do not fit into 1 rows of 5"):
        gated(float_rows, x, held.stack, 5, 4, False)
    with pytest.raises(ValueError, match="strengths of 3 streams, of which there are 4: wanted all of them or none"):
        gated(float_rows, x, held.stack, 3, 4)
    wide = made("Q8_0", 320, (18,), False)
    with pytest.raises(ValueError, match="1 rows of 18 sums mix into 1 rows of 2: wanted a whole number of streams to 8"):
        mixed(float_rows, x, wide.stack, rows_of(1, 18), 2)
    with pytest.raises(ValueError, match="from the sums of one stack of one format, 3 stand in another"):
        Mixed(x, x).after(3)


def gated(product: Product, x: np.ndarray, stack: Stack, rank: int, streams: int, injects: bool = True) -> tuple[np.ndarray, np.ndarray]:
    act, strengths = (to_device(part) for part in arrays((len(x), rank), (len(x), stack.num_outs - rank if injects else 0)))
    product(x, stack, Gates(act, strengths, streams))
    return to_host(act), to_host(strengths)


def mixed(product: Product, x: np.ndarray, stack: Stack, normed: np.ndarray, hidden: int) -> np.ndarray:
    out = to_device(arrays((len(x), hidden))[0])
    product(x, stack, Mixed(to_device(normed), out))
    return to_host(out)


def columns(product: Product, x: np.ndarray, stack: Stack) -> np.ndarray:
    out = to_device(arrays((len(x), stack.num_outs))[0])
    product(x, stack, Columns(out))
    return to_host(out)


def arrays(*shapes: tuple[int, int]) -> list[Any]:
    """Of NaNs, which no sum may leave."""
    return [np.full(shape, np.nan, np.float32) for shape in shapes]
