"""The numpy truth of attention over selected tokens, against a mask over all of them, and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba.reference_ops import selected_attention, tokens_read
from tests.kernels.attention import draw


def test_what_a_token_reads_by_hand() -> None:
    chosen = np.array([[9, 9], [0, 2], [1, 2], [0, 1]])
    assert [row.tolist() for row in tokens_read(chosen, 3, 7, 4)] == [
        list(range(8)),  # position 7 has two whole blocks, as many as it may read
        [0, 1, 2, 6, 7, 8],  # position 8 ends a third, and has nothing after it
        [3, 4, 5, 6, 7, 8, 9],
        [0, 1, 2, 3, 4, 5, 9, 10],
    ]
    assert [row.tolist() for row in tokens_read(None, 3, 10, 2)] == [list(range(11)), list(range(12))]


@pytest.mark.parametrize("start", [0, 5, 24, 25, 26, 27])
def test_equals_a_softmax_over_a_mask(start: int) -> None:
    drawn = draw((2, 9, 3, 8), start, 3)
    stop = start + 9
    seen = np.zeros((9, stop), bool)
    for t, position in enumerate(range(start, stop)):
        whole = (position + 1) // 4
        seen[t, : position + 1] = whole <= 3
        if whole > 3:
            seen[t, whole * 4 : position + 1] = True
            for block in drawn.chosen[t]:
                seen[t, block * 4 : block * 4 + 4] = True
    keys, values = drawn.keys[:, :stop].astype(np.float64), drawn.values[:, :stop].astype(np.float64)
    share = np.where(seen[None, :, None], np.exp(np.einsum("ktgd,knd->ktgn", drawn.query, keys)), 0)
    want = np.einsum("ktgn,knd->ktgd", share / share.sum(-1, keepdims=True), values)
    got = selected_attention(drawn.query, drawn.keys, drawn.values, drawn.chosen, 4, start)
    np.testing.assert_allclose(got, want, rtol=1e-12)
