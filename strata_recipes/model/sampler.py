"""Logits to the next token: the best one, or a draw from a seeded generator. Does not know text or when to stop."""

from __future__ import annotations

import numpy as np

from strata_recipes.errors import ModelError
from strata_recipes.plan.plan import DecodePlan

COLDEST = 1e-6  # at and below this a temperature means the best token: dividing by it would overflow


def generator(decode: DecodePlan) -> np.random.Generator:
    """The stream of draws of one run; the same seed draws the same."""
    return np.random.Generator(np.random.PCG64(decode.seed))


def sample(logits: np.ndarray, decode: DecodePlan, rng: np.random.Generator) -> int:
    """The next token for logits [vocab]. Greedy takes none of `rng`'s draws, sampling exactly one. Ties: the lowest id."""
    values = np.asarray(logits)
    best = _highest(values)
    if decode.sampler == "greedy" or decode.temperature <= COLDEST or np.isposinf(values[best]):
        return best
    values = values.astype(np.float64)
    ids = _best(values, decode.top_k, sort=decode.top_p < 1)
    sums = np.cumsum(_softmax(values[ids] / decode.temperature))
    if decode.top_p < 1:
        # the smallest set that reaches the share; at least one token
        sums = sums[: int(np.searchsorted(sums, decode.top_p * sums[-1])) + 1]
    drawn = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
    last = int(np.searchsorted(sums, sums[-1]))  # if the product rounds up to the sum: the last token with weight
    return int(ids[min(drawn, last)])


def _highest(values: np.ndarray) -> int:
    """The id of the highest logit. numpy takes a NaN for the highest, so one look at it tells whether any is unusable."""
    best = int(np.argmax(values)) if values.ndim == 1 and values.size else -1
    if best < 0 or np.isnan(values[best]) or np.isneginf(values[best]):
        _refuse_unusable(values)
    return best


def _refuse_unusable(values: np.ndarray) -> None:
    if values.ndim != 1 or values.size == 0:
        raise ModelError(f"logits have shape {list(values.shape)}, wanted one row over the vocabulary")
    if np.isnan(values).any():
        bad = np.flatnonzero(np.isnan(values))
        raise ModelError(f"{len(bad)} of {values.size} logits are NaN, the first at token {bad[0]}: run with experts.verify=true")
    if np.isneginf(values).all():
        raise ModelError(f"all {values.size} logits are -inf: no token can follow, run with experts.verify=true")


def _best(values: np.ndarray, top_k: int, sort: bool) -> np.ndarray:
    """Ids to draw from: all, or the `top_k` best (0: all), best first if sorted or cut."""
    ids = np.arange(values.size)
    if 0 < top_k < values.size:
        threshold = np.partition(values, values.size - top_k)[values.size - top_k]
        ids = np.flatnonzero(values >= threshold)  # may be more than top_k on a tie
    elif not sort:
        return ids
    return ids[np.argsort(-values[ids], kind="stable")][: top_k or None]


def _softmax(values: np.ndarray) -> np.ndarray:
    weights: np.ndarray = np.exp(values - values.max())
    weights /= weights.sum()
    return weights
