"""Numpy truth of every op on dequantized weights: what the CPU and CUDA kernels are held to. Knows no format and no device.

Sums are in float64, so a kernel differs from them by its own roundings alone; what must agree to the bit is float32 here too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bits = NDArray[np.uint16]
GROUP = 32  # activations that share a scale


def to_bits(values: Floats, output: str) -> Bits:
    """float32 to float16 or bfloat16 as bits, to nearest even. output: "f16" or "bf16"."""
    with np.errstate(over="ignore"):
        if output == "f16":
            return values.astype(np.float16).view(np.uint16)
    words = values.view(np.uint32).astype(np.uint64)
    rounded = ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded)


def from_bits(bits: Bits, output: str) -> Floats:
    """The inverse of `to_bits`: exact."""
    if output == "f16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(values: Floats, compute: str) -> Floats:
    """Activations [.., K] as operands of `compute`: "f32", "f16", "bf16" or "q8"."""
    if compute == "q8":
        return round_rows(values)
    return values if compute == "f32" else from_bits(to_bits(values, compute), compute)


def rounded_weights(values: Floats, compute: str) -> Floats:
    """Weights as operands of `compute`: q8 leaves them as they are."""
    return values if compute == "q8" else rounded(values, compute)


def quantize_rows(x: Floats) -> tuple[NDArray[np.int8], Floats]:
    """x [R, K] -> codes [R, K], scales [R, ceil(K / 32)]: largest magnitude / 127, codes to nearest even. All in float32.

    A group with a NaN or an infinity has that for its scale and zeros for its codes.
    """
    rows, width = x.shape
    groups = np.pad(x, ((0, 0), (0, -width % GROUP))).reshape(rows, -(-width // GROUP), GROUP)
    scales = np.abs(groups).max(axis=2, initial=np.float32(0)) / np.float32(127)
    with np.errstate(invalid="ignore", divide="ignore"):
        codes = np.clip(np.rint(groups / scales[:, :, None]), -127, 127)
    codes = np.where((scales[:, :, None] > 0) & ~np.isnan(codes), codes, 0)
    return codes.astype(np.int8).reshape(rows, groups.shape[1] * GROUP)[:, :width].copy(), scales


def round_rows(x: Floats) -> Floats:
    """x [R, K] to the values that its codes and scales stand for, the product in float32."""
    codes, scales = quantize_rows(x)
    with np.errstate(invalid="ignore"):
        return codes.astype(np.float32) * np.repeat(scales, GROUP, axis=1)[:, : codes.shape[1]]


def unquantized(codes: NDArray[np.int8], scales: Floats) -> NDArray[np.float64]:
    """The values that `quantize_rows` stands for."""
    return codes.astype(np.float64) * np.repeat(scales.astype(np.float64), GROUP, axis=1)[:, : codes.shape[1]]


def matvec(x: NDArray[Any], weights: Floats) -> NDArray[np.float64]:
    """x [R, K], weights [N, K] -> [R, N]."""
    product: NDArray[np.float64] = x.astype(np.float64) @ weights.astype(np.float64).T
    return product


def magnitudes(x: NDArray[Any], weights: Floats) -> NDArray[np.float64]:
    """The sums of the products' magnitudes, to which a kernel's roundings are in proportion."""
    return matvec(np.abs(x), np.abs(weights))


def silu(x: NDArray[Any]) -> NDArray[np.float64]:
    """x * sigmoid(x)."""
    wide = x.astype(np.float64)
    value: NDArray[np.float64] = wide / (1 + np.exp(-wide))
    return value


def gate_up(x: Floats, gate: Floats, up: Floats, compute: str) -> NDArray[np.float64]:
    """silu(x gate^T) * (x up^T) with operands rounded as `compute` says; the result is not rounded."""
    x, gate, up = rounded(x, compute), rounded_weights(gate, compute), rounded_weights(up, compute)
    return silu(matvec(x, gate)) * matvec(x, up)


def moe_shared_init(shared: Floats, gate: Floats) -> NDArray[np.float64]:
    """sigmoid(gate)[:, None] * shared: [T, H], [T]."""
    value: NDArray[np.float64] = shared.astype(np.float64) / (1 + np.exp(-gate.astype(np.float64)))[:, None]
    return value


def moe_scatter_add(y: Floats, weights: Floats, places: NDArray[np.int32], acc: Floats) -> None:
    """acc[t] += weights[t, j] * y[places[t, j]] for j in turn, product and sum rounded apart; -1: no such row. To the bit."""
    for j in range(places.shape[1]):
        held = places[:, j] >= 0
        acc[held] += weights[held, j, None] * y[places[held, j]]


def route_topk(scores: Floats, count: int) -> tuple[NDArray[np.int32], Floats, NDArray[np.int32]]:
    """[T, E] -> ids [T, k] best first, ties to the lower id, a NaN below -inf; their scores; NaNs a row. To the bit."""
    if not 1 <= count <= scores.shape[1]:
        raise ValueError(f"{count} of {scores.shape[1]} experts: wanted 1 to {scores.shape[1]}")
    bad = np.isnan(scores)
    order = np.lexsort((np.broadcast_to(np.arange(scores.shape[1]), scores.shape), -np.where(bad, 0, scores), bad), axis=1)
    ids = order[:, :count].astype(np.int32)
    return ids, np.take_along_axis(scores, ids.astype(np.int64), axis=1), bad.sum(axis=1).astype(np.int32)


def tokens_read(chosen: NDArray[Any] | None, block: int, start: int, num_tokens: int) -> list[NDArray[np.int64]]:
    """The earlier tokens, ascending, that each token from position `start` on reads: chosen [T, b] blocks of `block` tokens and
    what comes after its last whole block; all of them where chosen is None or holds every whole block."""
    read = []
    for t, position in enumerate(range(start, start + num_tokens)):
        whole, first = (position + 1) // block, 0
        blocks = np.empty(0, np.int64)
        if chosen is not None and whole > chosen.shape[1]:
            blocks, first = np.asarray(chosen[t], np.int64), whole * block
        inside = (blocks[:, None] * block + np.arange(block)).reshape(-1)
        read.append(np.concatenate([inside, np.arange(first, position + 1)]))
    return read


def selected_attention(
    query: Floats, keys: NDArray[Any], values: NDArray[Any], chosen: NDArray[Any] | None, block: int, start: int
) -> NDArray[np.float64]:
    """softmax(query . keys) values over the tokens that each token reads: [K, T, G, D], [K, context, D], [T, b] -> [K, T, G, D]."""
    out = np.empty(query.shape, np.float64)
    for t, tokens in enumerate(tokens_read(chosen, block, start, query.shape[1])):
        scores = query[:, t].astype(np.float64) @ keys[:, tokens].astype(np.float64).transpose(0, 2, 1)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, t] = share / share.sum(-1, keepdims=True) @ values[:, tokens].astype(np.float64)
    return out


def select_blocks(scores: Floats, count: int, block: int, start: int) -> NDArray[np.int32]:
    """[T, n] -> [T, count] ids, ascending, of the best of each token's whole blocks, ties to the lower id, a NaN below -inf. Exact."""
    chosen = np.tile(np.arange(count, dtype=np.int32), (len(scores), 1))
    for t, row in enumerate(scores):
        line = row[: (start + t + 1) // block]
        if len(line) > count:
            bad = np.isnan(line)
            order = np.lexsort((np.arange(len(line)), -np.where(bad, 0, line), bad))
            chosen[t] = np.sort(order[:count])
    return chosen


def delta_chunks(
    reads: NDArray[Any], wanted: NDArray[Any], adds: NDArray[Any], decay: NDArray[Any], state: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """written [V, N, C, D], the states before each chunk [V, N, D, D], and the last state: of the CUDA kernel's recurrence."""
    now, written, before = state.astype(np.float64), np.empty(reads.shape), np.empty((*reads.shape[:2], *state.shape[1:]))
    for n in range(reads.shape[1]):
        before[:, n] = now
        written[:, n] = wanted[:, n] - reads[:, n].astype(np.float64) @ now
        now = decay[:, n, None, None] * now + adds[:, n].astype(np.float64).transpose(0, 2, 1) @ written[:, n]
    return written, before, now


def index_scores(queries: NDArray[Any], blocks: NDArray[Any]) -> NDArray[np.float64]:
    """[T, H, D], [n, D] -> [T, n]: the sum over heads of relu(query . block), over sqrt(D)."""
    dots = queries.astype(np.float64) @ blocks.astype(np.float64).T
    scores: NDArray[np.float64] = np.maximum(dots, 0).sum(1) / queries.shape[2] ** 0.5
    return scores
