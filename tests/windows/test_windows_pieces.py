"""Cutting a range into aligned reads: against the definition, over the edges of alignment and random ranges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata_recipes.files.windows_pieces import PIECE_BYTES, STAGE_BYTES, pieces

A = 4096
EDGES = [0, 1, A - 1, A, A + 1, 2 * A, 2 * A + 7, STAGE_BYTES - 1, STAGE_BYTES, STAGE_BYTES + 1, PIECE_BYTES + A, 2 * PIECE_BYTES + 1]


def check(offset: int, num_bytes: int, address: int, alignment: int) -> None:
    at = 0
    for piece in pieces(offset, num_bytes, address, alignment):
        assert piece.offset % alignment == 0 and piece.num_bytes % alignment == 0 and piece.num_bytes > 0
        assert piece.at == at and piece.wanted > 0, "each wanted byte once, in order"
        assert piece.offset + piece.skip == offset + at, "out[at] is the file's byte at offset + at"
        assert piece.skip + piece.wanted <= piece.num_bytes
        assert piece.num_bytes - piece.skip - piece.wanted < alignment and piece.skip < alignment, "nothing read that is not needed"
        straight = piece.fits(address, alignment)
        assert piece.num_bytes <= max(alignment, PIECE_BYTES if straight else STAGE_BYTES)
        at += piece.wanted
    assert at == num_bytes


@pytest.mark.parametrize("num_bytes", EDGES)
@pytest.mark.parametrize("offset", EDGES)
def test_edges(offset: int, num_bytes: int) -> None:
    for address in (0, 1, A - 1, A, offset % A, 512):
        check(offset, num_bytes, address, A)


@given(st.integers(0, 2**45), st.integers(0, 3 * PIECE_BYTES), st.integers(0, 2**20), st.sampled_from([512, 4096, 65536]))
@settings(max_examples=300, deadline=None)
def test_any_range(offset: int, num_bytes: int, address: int, alignment: int) -> None:
    check(offset, num_bytes, address, alignment)


def test_a_buffer_aligned_like_the_file_is_read_straight_but_for_head_and_tail() -> None:
    address = 10 * A + 100
    cut = pieces(100, 5 * A, address, A)
    assert [piece.fits(address, A) for piece in cut] == [False, True, False]
    assert [piece.wanted for piece in cut] == [A - 100, 4 * A, 100]


def test_an_aligned_blob_is_one_straight_read() -> None:
    blob = 1_380 * 1024 // A * A
    (piece,) = pieces(7 * A, blob, 3 * A, A)
    assert piece.fits(3 * A, A) and (piece.offset, piece.num_bytes) == (7 * A, blob)


def test_a_large_extent_is_cut_at_eight_mib() -> None:
    cut = pieces(0, 32 << 20, 0, A)
    assert [piece.num_bytes for piece in cut] == [PIECE_BYTES] * 4
    assert np.all(np.diff([piece.offset for piece in cut]) == PIECE_BYTES)
