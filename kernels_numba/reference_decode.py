"""Numpy truth of the ops that a token's decoding is made of: dense products, streams, and the choice of experts. Knows no model.

An op writes into the arrays given to it, as its CUDA kernel does, so that a whole model can be composed on these. Inside it counts in
float64; what must agree to the bit is float32 here too. Addresses are of host memory.
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernels_numba import reference, reference_ops
from kernels_numba.endings import Columns, Ending, Mixed
from kernels_numba.formats import FORMATS
from kernels_numba.repack import unpack

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Addresses = NDArray[np.int64]
Wide = NDArray[np.float64]


class Matrices(Protocol):
    """What gpu.dense_matvec.Stack is, on the host."""

    @property
    def table(self) -> Any: ...
    @property
    def ends(self) -> Any: ...
    @property
    def num_outs(self) -> int: ...
    @property
    def format_name(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def planar(self) -> bool: ...


def stacked(stack: Matrices) -> Floats:
    """All matrices of a stack, one under the other: [num_outs, K]."""
    values, begin = [], 0
    for at, end in zip(stack.table.tolist(), stack.ends.tolist(), strict=True):
        size = FORMATS[stack.format_name].row_bytes(stack.width) * (end - begin)
        data = np.frombuffer((ctypes.c_uint8 * size).from_address(at), np.uint8)
        values.append(reference.dequantize(unpack(data, stack.format_name) if stack.planar else data, stack.format_name))
        begin = end
    return np.concatenate(values).reshape(stack.num_outs, stack.width)


def dense_matvec(x: Floats, stack: Matrices, to: Ending) -> None:
    """x W^T to its ending."""
    ended(reference_ops.matvec(x, stacked(stack)), to)


def dense_matvec_q8(codes: NDArray[np.int8], scales: Floats, stack: Matrices, to: Ending) -> None:
    """The same of the values that codes and scales stand for."""
    ended(reference_ops.matvec(reference_ops.unquantized(codes, scales), stacked(stack)), to)


def ended(sums: Floats | Wide, to: Ending) -> None:
    """What becomes of sums [R, n]."""
    if isinstance(to, Mixed):
        mixed = sigmoid(sums) * to.normed
        to.x[:] = mixed.reshape(len(sums), -1, to.x.shape[1]).mean(1)
        return
    columns = np.arange(to.first, to.first + sums.shape[1])
    if isinstance(to, Columns):
        to.out[:, columns] = sums
        return
    rank, wide = to.act.shape[1], sums.astype(np.float64) / to.num_streams
    inside = columns < rank
    to.act[:, columns[inside]] = reference_ops.silu(wide[:, inside])
    to.strengths[:, columns[~inside] - rank] = 2 * sigmoid(wide[:, ~inside])


def hyper_inject_norm(streams: Floats, block: Floats, strengths: Floats, weight: Floats, eps: float, normed: Floats) -> None:
    """streams [R, S * H] += block [R, H] times each stream's strength [R, S], to the bit; normed: each stream's RMS norm times [S, H]."""
    rows, (count, width) = len(streams), weight.shape
    split = streams.reshape(rows, count, width)
    streams[:] = (split + block[:, None] * strengths[:, :, None]).reshape(rows, -1)
    wide = streams.astype(np.float64).reshape(rows, count, width)
    normed[:] = (wide / np.sqrt((wide**2).mean(2, keepdims=True) + eps) * weight).reshape(rows, -1)


def sigmoid(x: NDArray[Any]) -> Wide:
    """1 / (1 + exp(-x))."""
    with np.errstate(over="ignore"):
        value: Wide = 1 / (1 + np.exp(-x.astype(np.float64)))
    return value


def route_decode(scores: Floats, table: Addresses, ids: Ints, weights: Floats, addresses: Addresses, nans: Ints) -> None:
    """scores [R, E] -> the k best experts in ascending id, weights [R, k] summing to one, their table entries; nans[0] += NaNs."""
    best, chosen, bad = reference_ops.route_topk(scores, ids.shape[1])
    order = np.argsort(best, axis=1)
    ids[:] = np.take_along_axis(best, order, 1)
    with np.errstate(invalid="ignore"):
        share = np.exp(chosen.astype(np.float64) - chosen[:, :1])
    weights[:] = np.take_along_axis(share / share.sum(1, keepdims=True), order, 1)
    addresses[:] = table[ids]
    nans[0] += bad.sum()


def silu_pair(gate_up: Floats, hidden: Floats) -> None:
    """hidden [J, I] = silu(gate) * up of gate_up [J, 2 I]."""
    width = hidden.shape[1]
    hidden[:] = reference_ops.silu(gate_up[:, :width]) * gate_up[:, width:]


def experts_combine(y: Floats, weights: Floats, shared: Floats, shared_gate: Floats, out: Floats) -> None:
    """out [R, H] = sigmoid(shared_gate) * shared + weights[r, j] * y[r * k + j] for j in turn, product and sum rounded apart."""
    count = weights.shape[1]
    out[:] = reference_ops.moe_shared_init(shared, shared_gate)
    reference_ops.moe_scatter_add(y, weights, np.arange(len(y), dtype=np.int32).reshape(-1, count), out)


def gather_blobs(
    addresses: Addresses, chosen: Ints | None, near: NDArray[np.uint8] | None, into: NDArray[np.uint8], found: Addresses, first: int,
    num_bytes: int,
) -> None:  # fmt: skip
    """found[j] = addresses[j] where it is 0 or near[chosen[j]] is set; else into[j], with bytes [first, first + num_bytes) of that blob."""
    for job, place in enumerate(addresses.tolist()):
        here = place == 0 or (near is not None and chosen is not None and bool(near[chosen[job]]))
        found[job] = place if here else into[job].ctypes.data
        if not here:
            into[job, first : first + num_bytes] = np.ctypeslib.as_array((ctypes.c_uint8 * num_bytes).from_address(place + first))
