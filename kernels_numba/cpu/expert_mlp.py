"""One expert's feed-forward network on float32 rows, and its weighted sum into the layer's output. Knows no model and no file.

A row's bits never depend on the rows beside it, on how many there are, or on the number of threads: every sum has
the one order of lanes.py. NaN and infinity go through. `expert_mlp` is `expert_hidden`, then `project`; the two are
public so that a caller can round the values between them. Kernels run without the interpreter's lock: reading ahead goes on.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from kernels_numba.cpu.lanes import LANES, dot_tile

_BLOCK = 24  # outs a task: whole tiles of 8 and of 3
_SMALL = 1 << 18  # multiply-adds that one thread does sooner than it would wake a second; the bits are the same either way
_tile_4x3, _tile_1x8, _tile_1x1 = dot_tile(4, 3), dot_tile(1, 8), dot_tile(1, 1)


def expert_mlp(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """down(silu(x gate^T) * (x up^T)): x [R, H], gate and up [I, H], down [H, I] -> [R, H], all float32, contiguous.

    Against exact arithmetic each sum over n values errs by at most n / 8 + 10 roundings. No rows: nothing is launched.
    """
    return project(expert_hidden(x, gate, up), down)


def expert_hidden(x: np.ndarray, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """silu(x gate^T) * (x up^T): [R, H] and twice [I, H] -> [R, I]."""
    return _launch(x, up, project(x, gate))


def project(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """x weight^T: [R, K] and [N, K] -> [R, N]."""
    return _launch(x, weight, np.empty((0, 0), np.float32))


def _launch(x: np.ndarray, weight: np.ndarray, gate: np.ndarray) -> np.ndarray:
    num_rows, num_outs = x.shape[0], weight.shape[0]
    out = np.empty((num_rows, num_outs), np.float32)
    if out.size:
        x, weight = _whole_lanes(x), _whole_lanes(weight)
        operands = out.reshape(-1), x.reshape(-1), weight.reshape(-1), gate.reshape(-1)
        if x.size * num_outs < _SMALL:
            _outs(*operands, 0, num_outs, num_rows, x.shape[1])
        else:
            _shared_outs(*operands, num_rows, x.shape[1])
    return out


def scatter_add(acc: np.ndarray, rows: np.ndarray, weights: np.ndarray, y: np.ndarray) -> None:
    """acc[rows[i]] += weights[i] * y[i] in the order of i, the product rounded to float32 before it is added.

    acc [T, H] float32, rows [R] int64, weights [R] float32, y [R, H] float32.
    """
    if y.size:
        _scatter_add(acc, rows, weights, y)


def _whole_lanes(values: np.ndarray) -> np.ndarray:
    """Columns padded with zeros to a multiple of the lanes; a copy is made for odd widths only."""
    missing = -values.shape[1] % LANES
    return np.pad(values, ((0, 0), (0, missing))) if missing else values


@njit(nogil=True)
def _outs(out, x, weight, gate, start, stop, num_rows, depth):  # type: ignore[no-untyped-def]
    """Outs start <= o < stop of all rows; with a `gate`, out becomes silu(gate) * out (one kernel: each costs seconds to compile)."""
    num_outs, r = out.size // num_rows, 0
    while r < num_rows:
        rows = 4 if r + 4 <= num_rows else 1
        outs = 3 if rows == 4 else 8
        o = start
        while o + outs <= stop:
            at = r * num_outs + o
            if rows == 4:
                _tile_4x3(out, at, num_outs, x, r * depth, weight, o * depth, depth)
            else:
                _tile_1x8(out, at, num_outs, x, r * depth, weight, o * depth, depth)
            o += outs
        for last in range(rows * (stop - o)):
            row, at = r + last // (stop - o), o + last % (stop - o)
            _tile_1x1(out, row * num_outs + at, num_outs, x, row * depth, weight, at * depth, depth)
        r += rows
    if gate.size:
        for row in range(num_rows):
            for at in range(row * num_outs + start, row * num_outs + stop):
                g = gate[at]
                out[at] *= g / (np.float32(1) + np.float32(math.exp(-g)))


@njit(parallel=True, nogil=True)
def _shared_outs(out, x, weight, gate, num_rows, depth):  # type: ignore[no-untyped-def]
    """The same, the outs shared among threads."""
    num_outs = out.size // num_rows
    for task in prange((num_outs + _BLOCK - 1) // _BLOCK):
        start = task * _BLOCK
        _outs(out, x, weight, gate, start, min(start + _BLOCK, num_outs), num_rows, depth)


@njit(nogil=True)
def _scatter_add(acc, rows, weights, y):  # type: ignore[no-untyped-def]
    for i in range(rows.size):
        for h in range(acc.shape[1]):
            acc[rows[i], h] += weights[i] * y[i, h]
