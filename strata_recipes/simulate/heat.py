"""From how often experts were chosen to the order in which they are kept, and to the skew that the routing model takes. Reads no file."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strata_recipes.simulate.routing import chances

Counts = npt.NDArray[np.int64]  # [layers, experts]
HOT_SHARE = 0.2  # of a layer's experts: the part of the curve that skew is read from
MAX_SKEW = 5.0


def hottest_first(counts: Counts) -> list[tuple[int, int]]:
    """All (layer, expert) pairs by count; of two alike the lower expert id, then the lower layer, as without a profile."""
    layers, experts = counts.shape
    pairs = [(layer, expert) for expert in range(experts) for layer in range(layers)]
    return sorted(pairs, key=lambda pair: -counts[pair])


def hot_share(counts: Counts) -> float:
    """Of all choices, the share that fell on the hottest fifth of each layer."""
    total = counts.sum()
    return float(np.sort(counts, axis=1)[:, ::-1][:, : _hot(counts.shape[1])].sum() / total) if total else 0.0


def skew_of(counts: Counts, top_k: int) -> float:
    """The routing model's skew at which the hottest fifth takes the same share of choices; 0 where it takes no more than its due.

    Few tokens make it too large: chance alone heats some experts then.
    """
    experts, wanted = counts.shape[1], hot_share(counts)
    low, high = 0.0, MAX_SKEW
    for _ in range(40):
        skew = (low + high) / 2
        model = chances(experts, top_k, skew)
        low, high = (skew, high) if sum(model[: _hot(experts)]) / sum(model) < wanted else (low, skew)
    return float(f"{(low + high) / 2:.4g}")


def _hot(experts: int) -> int:
    return max(1, round(HOT_SHARE * experts))
