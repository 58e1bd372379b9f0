"""The mixture's small ops on the CPU: the shared expert's start, silu(gate) * up, and the weighted sum. Knows no format."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def silu_multiply(gate: Floats, up: Floats, out: Floats) -> None:
    """out = silu(gate) * up, of one shape."""
    if gate.size:
        _silu_multiply(gate.reshape(-1), up.reshape(-1), out.reshape(-1))


def moe_shared_init(shared: Floats, gate: Floats, acc: Floats) -> None:
    """acc = sigmoid(gate)[:, None] * shared: shared, acc [T, H], gate [T], before sigmoid."""
    if shared.size:
        _shared_init(shared, gate, acc)


def moe_scatter_add(y: Floats, weights: Floats, places: NDArray[np.int32], acc: Floats) -> None:
    """acc[t] += weights[t, j] * y[places[t, j]] for j in turn, product and sum rounded apart; bit for bit reference_ops.

    `places` [T, k]: the sorted row of each of a token's experts, the experts in ascending id; -1 for one that y does not hold.
    """
    if acc.size:
        _scatter_add(y, weights, places, acc)


@njit(parallel=True, error_model="numpy")
def _silu_multiply(gate, up, out):  # type: ignore[no-untyped-def]
    for i in prange(gate.size):
        out[i] = gate[i] / (np.float32(1) + np.float32(math.exp(-gate[i]))) * up[i]


@njit(parallel=True, error_model="numpy")
def _shared_init(shared, gate, acc):  # type: ignore[no-untyped-def]
    for token in prange(shared.shape[0]):
        share = np.float32(1) / (np.float32(1) + np.float32(math.exp(-gate[token])))
        for h in range(shared.shape[1]):
            acc[token, h] = share * shared[token, h]


@njit(parallel=True)
def _scatter_add(y, weights, places, acc):  # type: ignore[no-untyped-def]
    for token in prange(acc.shape[0]):
        for j in range(places.shape[1]):
            row = places[token, j]
            if row >= 0:
                for h in range(acc.shape[1]):
                    acc[token, h] += weights[token, j] * y[row, h]
