"""The k best experts of each token on the CPU: any number of experts, ties to the lower id, NaN never chosen before a number."""

from __future__ import annotations

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray


def route_topk(scores: NDArray[np.float32], ids: NDArray[np.int32], values: NDArray[np.float32], nans: NDArray[np.int32]) -> None:
    """scores [T, E] -> ids [T, k] best first, values [T, k] (their scores), nans [T] (NaNs a row); bit for bit reference_ops.route_topk.

    The caller refuses a row whose count of NaN is not 0: it knows the layer and the token.
    """
    experts, count = scores.shape[1], ids.shape[1]
    if not 1 <= count <= experts:
        raise ValueError(f"{count} of {experts} experts: wanted 1 to {experts}")
    if scores.size:
        _route(scores, ids, values, nans)


@njit(inline="never")
def _before(score, expert, other, other_expert):  # type: ignore[no-untyped-def]
    """Whether an expert comes before another in a token's order."""
    if np.isnan(score) or np.isnan(other):
        return np.isnan(other) and (not np.isnan(score) or expert < other_expert)
    return score > other or (score == other and expert < other_expert)


@njit(parallel=True)
def _route(scores, ids, values, nans):  # type: ignore[no-untyped-def]
    for token in prange(scores.shape[0]):
        bad = 0
        for expert in range(scores.shape[1]):
            bad += np.isnan(scores[token, expert])
        nans[token] = bad
        last = -1
        for turn in range(ids.shape[1]):
            best = -1
            for expert in range(scores.shape[1]):
                score = scores[token, expert]
                if last >= 0 and not _before(scores[token, last], last, score, expert):
                    continue
                if best < 0 or _before(score, expert, scores[token, best], best):
                    best = expert
            ids[token, turn] = best
            values[token, turn] = scores[token, best]
            last = best
