"""The numpy truth of a delta net's chunks: put together with what its caller makes, it is the net's definition."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba.reference_ops import delta_chunks
from tests.kernels.delta import chunks_of, draw, token_by_token


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 200])
def test_chunks_are_the_definition(tokens: int) -> None:
    drawn = draw(3, tokens, 16)
    want, last = token_by_token(drawn)
    parts = chunks_of(drawn, 64)
    written, before, state = delta_chunks(parts.reads, parts.wanted, parts.adds, parts.decay, drawn.state)
    out = (parts.queries @ before + parts.inner @ written).reshape(3, -1, 16)[:, :tokens]
    np.testing.assert_allclose(out, want, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(state, last, rtol=1e-10, atol=1e-10)
