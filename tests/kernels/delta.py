"""Heads of a gated delta net: their tokens, and the matrices of their chunks, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Tokens:
    """V heads, T tokens, D values: q, k, v [V, T, D]; log_decay, beta [V, T]; state [V, D, D]."""

    q: Array
    k: Array
    v: Array
    log_decay: Array
    beta: Array
    state: Array


@dataclass(frozen=True)
class Chunks:
    """N chunks of C tokens: reads, wanted, adds [V, N, C, D], decay [V, N]; grown queries [V, N, C, D], inner [V, N, C, C]."""

    reads: Array
    wanted: Array
    adds: Array
    decay: Array
    queries: Array
    inner: Array


def draw(heads: int, tokens: int, dim: int, seed: int = 0) -> Tokens:
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((heads, tokens, dim)) for _ in range(3))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    log_decay, beta = -3 * rng.random((heads, tokens)) ** 4, rng.random((heads, tokens))
    return Tokens(q, k, v, log_decay, beta, rng.standard_normal((heads, dim, dim)))


def chunks_of(t: Tokens, size: int) -> Chunks:
    """What of the net does not need the state; missing tokens of the last chunk are zeros."""
    num = -(-t.k.shape[1] // size)
    missing = num * size - t.k.shape[1]
    q, k, v, log_decay, beta = (
        np.pad(part, ((0, 0), (0, missing)) + ((0, 0),) * (part.ndim - 2)).reshape(len(part), num, size, *part.shape[2:])
        for part in (t.q, t.k, t.v, t.log_decay, t.beta)
    )
    total = log_decay.cumsum(-1)
    lower = np.tril(np.ones((size, size), bool))
    between = np.where(lower, np.exp(np.where(lower, total[..., :, None] - total[..., None, :], 0)), 0)
    system = np.tril(beta[..., None] * (k @ k.swapaxes(-1, -2)) * between, -1) + np.eye(size)
    reads = np.linalg.solve(system, (beta * np.exp(total))[..., None] * k)
    wanted = np.linalg.solve(system, beta[..., None] * v)
    adds = np.exp(total[..., -1:] - total)[..., None] * k
    return Chunks(reads, wanted, adds, np.exp(total[..., -1]), np.exp(total)[..., None] * q, (q @ k.swapaxes(-1, -2)) * between)


def token_by_token(t: Tokens) -> tuple[Array, Array]:
    """The definition: S = decay S; S += beta k (v - k S)^T; o = q S. Returns o [V, T, D] and the last S."""
    state, out = t.state.copy(), np.empty_like(t.v)
    for i in range(t.k.shape[1]):
        state *= np.exp(t.log_decay[:, i])[:, None, None]
        read = np.einsum("vk,vkd->vd", t.k[:, i], state)
        state += t.beta[:, i, None, None] * t.k[:, i, :, None] * (t.v[:, i] - read)[:, None]
        out[:, i] = np.einsum("vk,vkd->vd", t.q[:, i], state)
    return out, state
