"""Random queries, keys, values and chosen blocks, as a QSA layer would have them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Drawn:
    """K kv heads, T tokens from position `start` on, G query heads a kv head, D values; b blocks of `block` tokens a query."""

    query: NDArray[np.float32]  # [K, T, G, D]
    keys: NDArray[np.floating]  # [K, context, D]
    values: NDArray[np.floating]
    chosen: NDArray[np.int32]  # [T, b]: of the whole blocks up to each token; any where there are fewer than b
    block: int
    start: int

    def part(self, at: int, to: int) -> Drawn:
        """The tokens from the at-th to before the to-th."""
        query = np.ascontiguousarray(self.query[:, at:to])
        return Drawn(query, self.keys, self.values, np.ascontiguousarray(self.chosen[at:to]), self.block, self.start + at)


def draw(shape: tuple[int, int, int, int], start: int, chosen: int, dtype: type = np.float32, block: int = 4, spread: float = 1.0) -> Drawn:
    """shape (K, T, G, D). Tokens after the last query, which nothing may read, are NaN. `spread`: of the scores."""
    heads, tokens, _, dim = shape
    rng, context = np.random.default_rng(start + dim), start + tokens + 3
    query = (spread / dim**0.5 * rng.standard_normal(shape)).astype(np.float32)
    keys, values = (rng.standard_normal((heads, context, dim)).astype(dtype) for _ in range(2))
    keys[:, start + tokens :], values[:, start + tokens :] = np.nan, np.nan
    picked = np.full((tokens, chosen), 2**30, np.int32)  # an id that would fault where it must not be read
    for t in range(tokens):
        whole = (start + t + 1) // block
        if whole > chosen:
            picked[t] = np.sort(rng.permutation(whole)[:chosen])
    return Drawn(query, keys, values, picked, block, start)
