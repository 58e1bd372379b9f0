"""Numpy truth of the ops between a mixer's matrices when a few consecutive tokens are read: R rows from `position` on.

An op writes into the arrays that it is given, as the kernel of its name does, and has its arguments. Sums are in float64; what is kept
or stored is rounded to the array's type. Knows no device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels_numba.kv_formats import KV_FORMATS, KV_OF_TYPE
from kernels_numba.reference_kv import decode, encode, rotate
from kernels_numba.reference_ops import Floats, index_scores, select_blocks, selected_attention, silu

Wide = NDArray[np.float64]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


def delta_conv(mixed: Floats, conv: Floats, weight: Floats, key_heads: int, dim: int, out: Floats) -> None:
    """Convolution of the first columns of mixed over conv and the rows before, silu; query and key heads to length 1, queries scaled."""
    (channels, taps), rows = weight.shape, len(mixed)
    joined = np.concatenate([conv, mixed[:, :channels]])
    total = sum(joined[tap : tap + rows].astype(np.float64) * weight[:, tap] for tap in range(taps))
    conv[:] = joined[rows:]
    heads = silu(np.asarray(total)).reshape(rows, -1, dim)
    heads[:, : 2 * key_heads] /= np.sqrt((heads[:, : 2 * key_heads] ** 2).sum(-1, keepdims=True) + 1e-6)
    heads[:, :key_heads] *= dim**-0.5
    out[:] = heads.reshape(rows, -1)


def delta_step(qkv: Floats, mixed: Floats, first: int, decay: Floats, bias: Floats, state: Floats, key_heads: int, read: Floats) -> None:
    """The gated delta rule, row after row; its rates are columns of mixed."""
    heads, dim = state.shape[:2]
    rates = mixed[:, first : first + 2 * heads]
    now, of = state.astype(np.float64), np.arange(heads) % key_heads
    for row, rate, out in zip(qkv.astype(np.float64).reshape(len(qkv), -1, dim), rates.astype(np.float64), read, strict=True):
        query, key, value = row[of], row[key_heads + of], row[2 * key_heads :]
        alpha, beta = rate[:heads] + bias, rate[heads:]
        now *= np.exp(decay * np.logaddexp(0, alpha))[:, None, None]
        added = (value - np.einsum("hk,hkv->hv", key, now)) / (1 + np.exp(-beta))[:, None]
        now += key[:, :, None] * added[:, None]
        out[:] = np.einsum("hk,hkv->hv", query, now).reshape(-1)
    state[:] = now


def delta_norm(read: Floats, mixed: Floats, offset: int, weight: Floats, eps: float, gate: str, out: Floats) -> None:
    """rms_norm of each head, times its gate from columns of mixed."""
    share = mixed[:, offset : offset + read.shape[1]].astype(np.float64)
    opened = silu(share) if gate == "silu" else 1 / (1 + np.exp(-share))
    out[:] = rms_norm(read.reshape(len(read), -1, len(weight)), weight, eps).reshape(read.shape) * opened


def attention_inputs(
    heads: Floats, q_norm: Floats, k_norm: Floats, eps: float, frequencies: Floats, position: Longs,
    query: Floats, keys: NDArray[Any], values: NDArray[Any],
) -> None:  # fmt: skip
    """heads [R, (2 Q + 2 K) D]: queries, each before its gate, keys, values; normed, turned, stored at the rows' places."""
    rows, count, dim = query.shape
    start, split = int(position[0]), heads.reshape(rows, -1, dim)
    places = np.arange(start, start + rows)
    asked = turned(rms_norm(split[:, : 2 * count : 2], q_norm, eps), places, frequencies) * dim**-0.5
    query[:] = rotate(asked.astype(np.float32), KV_OF_TYPE[keys.dtype.name])
    wide, value = np.split(split[:, 2 * count :], 2, axis=1)
    key = turned(rms_norm(wide, k_norm, eps), places, frequencies)
    for cells, part in ((keys, key), (values, value)):
        cells[:, places] = encode(part.astype(np.float32).swapaxes(0, 1), KV_OF_TYPE[cells.dtype.name]).view(cells.dtype)


def attention_decode(
    query: Floats, keys: NDArray[Any], values: NDArray[Any], chosen: Ints, heads: Floats, block: int, position: Longs,
    partial: Floats, out: Floats,
) -> None:  # fmt: skip
    """Attention of query [R, Q, D] over what selected_attention reads, times the gates; partial is the kernels' own."""
    rows, count, dim = query.shape
    grouped = query.reshape(rows, len(keys), -1, dim).swapaxes(0, 1)
    name = KV_OF_TYPE[keys.dtype.name]
    held = [decode(np.ascontiguousarray(cells).view(np.uint8), dim, name) for cells in (keys, values)]
    read = selected_attention(grouped, held[0], held[1], chosen, block, int(position[0])).swapaxes(0, 1).reshape(rows, count, dim)
    read = read if KV_FORMATS[name].rotation(dim) == 1 else rotate(read.astype(np.float32), name)
    gates = heads.reshape(rows, -1, dim)[:, 1 : 2 * count : 2].astype(np.float64)
    out[:] = (read / (1 + np.exp(-gates))).reshape(rows, -1)


def index_append(
    k: Floats, first: int, pending: Floats, blocks: Floats, block: int, k_norm: Floats, eps: float, frequencies: Floats, position: Longs
) -> None:
    """Keys k[:, first : first + Di] into their places in pending; each block that they complete, pooled, normed and turned."""
    width = blocks.shape[1]
    for place, key in enumerate(k[:, first : first + width], int(position[0])):
        pending[place % len(pending)] = key
        if (place + 1) % block == 0:
            begin = place + 1 - block
            pooled = pending[np.arange(begin, place + 1) % len(pending)].astype(np.float64).mean(0)
            blocks[begin // block] = turned(rms_norm(pooled[None, None], k_norm, eps), np.array([begin]), frequencies)[0, 0]


def index_queries(q: Floats, first: int, q_norm: Floats, eps: float, frequencies: Floats, position: Longs, out: Floats) -> None:
    """Columns of q, normed and turned a head at a time."""
    heads = q[:, first : first + out[0].size].reshape(out.shape)
    out[:] = turned(rms_norm(heads, q_norm, eps), int(position[0]) + np.arange(len(q)), frequencies)


def index_scores_at(queries: Floats, blocks: Floats, block: int, count: int, position: Longs, scores: Floats) -> None:
    """Scores of each row's whole blocks, where it has more than `count` of them; other scores stay as they were."""
    for row, place in enumerate(range(int(position[0]), int(position[0]) + len(queries))):
        whole = (place + 1) // block
        if whole > count:
            scores[row, :whole] = index_scores(queries[row : row + 1], blocks[:whole])[0]


def select_blocks_at(scores: Floats, block: int, position: Longs, chosen: Ints) -> None:
    """reference_ops.select_blocks of rows from `position` on."""
    chosen[:] = select_blocks(scores, chosen.shape[1], block, int(position[0]))


def rms_norm(x: NDArray[Any], weight: Floats, eps: float) -> Wide:
    """x / sqrt(mean of squares over the last dimension + eps) * weight."""
    wide = x.astype(np.float64)
    value: Wide = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + eps) * weight
    return value


def turned(x: Wide, places: NDArray[Any], frequencies: Floats) -> Wide:
    """x [T, heads, D] with its pairs (i, i + F) turned by place * frequencies[i], a float32 product; the rest as it is."""
    angles = (places.astype(np.float32)[:, None] * frequencies).astype(np.float64)[:, None]
    half = len(frequencies)
    low, high = x[..., :half], x[..., half : 2 * half]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin, x[..., 2 * half :]], axis=-1)
