"""The chunk recurrence of a gated delta net, against the numpy truth; its bits depend on a head's own matrices alone."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference_ops
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.gpu.delta_chunks import delta_chunks
from tests.kernels.delta import chunks_of, draw, token_by_token

CASES = [(1, 150, 32)] if SIMULATED else [(3, 1, 32), (3, 200, 32), (2, 64, 64), (5, 700, 96), (48, 2100, 128)]
Operands = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@pytest.mark.parametrize(("heads", "tokens", "dim"), CASES)
def test_equals_the_reference_and_the_definition(heads: int, tokens: int, dim: int) -> None:
    drawn = draw(heads, tokens, dim)
    parts = chunks_of(drawn, 64)
    operands = narrow(heads, tokens, dim)
    written, before, state = run(operands)
    for got, want in zip((written, before, state), reference_ops.delta_chunks(*operands), strict=True):
        assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want)
    out = (parts.queries @ before + parts.inner @ written).reshape(heads, -1, dim)[:, :tokens]
    for got, want in zip((out, state), token_by_token(drawn), strict=True):
        assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want)


@pytest.mark.gpu
def test_a_heads_bits_do_not_depend_on_the_others_or_on_where_a_call_ends() -> None:
    operands = narrow(7, 64 * 9, 128)
    whole = run(operands)
    alone = run(tuple(np.ascontiguousarray(part[4:5]) for part in operands))  # type: ignore[arg-type]
    for got, every in zip(alone, whole, strict=True):
        assert (got[0].view(np.uint32) == every[4].view(np.uint32)).all()
    first = run((*(np.ascontiguousarray(part[:, :4]) for part in operands[:4]), operands[4]))  # type: ignore[arg-type]
    second = run((*(np.ascontiguousarray(part[:, 4:]) for part in operands[:4]), first[2]))  # type: ignore[arg-type]
    assert (second[2].view(np.uint32) == whole[2].view(np.uint32)).all()
    assert (second[0].view(np.uint32) == whole[0][:, 4:].view(np.uint32)).all()


def test_no_chunks_leave_the_state() -> None:
    state = np.ones((2, 32, 32), np.float32)
    empty = np.empty((2, 0, 64, 32), np.float32)
    assert (run((empty, empty, empty, np.empty((2, 0), np.float32), state))[2] == state).all()


def test_wrong_shapes_are_refused() -> None:
    rows = np.zeros((1, 1, 64, 24), np.float32)
    with pytest.raises(ValueError, match="chunks of 64 tokens with 24 values: wanted 64, and a multiple of 32 to 128"):
        run((rows, rows, rows, np.zeros((1, 1), np.float32), np.zeros((1, 24, 24), np.float32)))


def narrow(heads: int, tokens: int, dim: int) -> Operands:
    """The kernel's operands in float32, the state last."""
    drawn = draw(heads, tokens, dim)
    parts = chunks_of(drawn, 64)
    made = [part.astype(np.float32) for part in (parts.reads, parts.wanted, parts.adds, parts.decay, drawn.state)]
    return made[0], made[1], made[2], made[3], made[4]


def run(operands: Operands) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """written, before, and the state after."""
    heads, chunks, _, dim = operands[0].shape
    written = to_device(np.full(operands[0].shape, np.nan, np.float32))
    before = to_device(np.full((heads, chunks, dim, dim), np.nan, np.float32))
    reads, wanted, adds, decay, state = (to_device(part) for part in operands)
    delta_chunks(reads, wanted, adds, decay, state, written, before)
    return to_host(written), to_host(before), to_host(state)
