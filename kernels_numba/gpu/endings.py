"""The ends of a product's kernel, on the GPU: what a thread does with whole sums. Knows no format and no weights.

What an ending adds is what an op of its own would, in the same order: the sums' bits are those of plain columns.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels_numba.device import address, inline
from kernels_numba.endings import MOST_STREAMS, Ending, Gates, Mixed
from kernels_numba.gpu.moe import sigmoid, silu
from kernels_numba.gpu.teams import Cut, Finish
from kernels_numba.ptx import add, divide, load_float, multiply, store_float

_ZERO, _TWO = np.float32(0), np.float32(2)


@dataclass(frozen=True)
class Places:
    """Where an ending's arrays lie, with the bytes of a row of each, and the two numbers that its kernel is told."""

    out: int
    out_bytes: int
    beside: int
    beside_bytes: int
    width: int
    first: int

    def at(self, row: int) -> tuple[int, int, int, int]:
        """From that row on."""
        return self.out + row * self.out_bytes, self.beside + row * self.beside_bytes, self.width, self.first


def places(to: Ending, rows: int, num_outs: int) -> Places:
    """Checked: ValueError where the sums of `rows` rows do not fit."""
    if isinstance(to, Mixed):
        (got, hidden), wide = (int(size) for size in to.x.shape), int(to.normed.shape[1])
        if got != rows or wide != num_outs or hidden < 1 or wide % hidden or wide > MOST_STREAMS * hidden:
            raise ValueError(
                f"{rows} rows of {num_outs} sums mix into {got} rows of {hidden}: wanted a whole number of streams to {MOST_STREAMS}"
            )
        x, normed = address("x", to.x, "float32", (rows, hidden)), address("normed", to.normed, "float32", (rows, wide))
        return Places(x, hidden * 4, normed, wide * 4, hidden, 0)
    if isinstance(to, Gates):
        (got, rank), given = (int(size) for size in to.act.shape), int(to.strengths.shape[1])
        _fits(rows, num_outs, to.first, got, rank + given)
        if given not in (0, to.num_streams) or to.num_streams < 1:
            raise ValueError(f"strengths of {given} streams, of which there are {to.num_streams}: wanted all of them or none")
        act, strengths = address("act", to.act, "float32", (rows, rank)), address("strengths", to.strengths, "float32", (rows, given))
        return Places(act, rank * 4, strengths, given * 4, given, to.first)
    got, wide = (int(size) for size in to.out.shape)
    _fits(rows, num_outs, to.first, got, wide)
    return Places(address("out", to.out, "float32", (rows, wide)), wide * 4, 0, 0, wide, to.first)


def apart(to: Ending, shape: Cut) -> Cut:
    """How the work is cut for it: a team makes what ends in one value."""
    if isinstance(to, Mixed):
        hidden = int(to.x.shape[1])
        return Cut(shape.lanes, int(to.normed.shape[1]) // hidden, hidden)
    return shape


def finish(to: Ending) -> Finish:
    """What a kernel is compiled for."""
    if isinstance(to, Mixed):
        return _Mixed()
    return _Gates(int(to.act.shape[1]), to.num_streams) if isinstance(to, Gates) else STORED


def _fits(rows: int, num_outs: int, first: int, out_rows: int, out_width: int) -> None:
    if out_rows != rows or not 0 <= first <= out_width - num_outs:
        raise ValueError(f"{rows} rows of {num_outs} outputs from column {first} on do not fit into {out_rows} rows of {out_width}")


@dataclass(frozen=True)
class _Columns:
    def device_function(self, total_of: Any, shape: Cut, rows: int) -> Any:
        @inline
        def store(partial, at, j, start, last, out, beside, width, first):  # type: ignore[no-untyped-def]
            o = j // rows
            n, r = start + o, j - o * rows
            if n <= last:
                store_float(out + (r * width + first + n) * 4, total_of(partial, at + j))

        return store


@dataclass(frozen=True)
class _Gates:
    rank: int
    streams: int

    def device_function(self, total_of: Any, shape: Cut, rows: int) -> Any:
        rank, over = np.int64(self.rank), np.float32(self.streams)

        @inline
        def store_gates(partial, at, j, start, last, out, beside, width, first):  # type: ignore[no-untyped-def]
            o = j // rows
            n, r = start + o, j - o * rows
            if n <= last:
                column, value = first + n, divide(total_of(partial, at + j), over)
                if column < rank:
                    store_float(out + (r * rank + column) * 4, silu(value))
                else:
                    store_float(beside + (r * width + column - rank) * 4, multiply(_TWO, sigmoid(value)))

        return store_gates


@dataclass(frozen=True)
class _Mixed:
    def device_function(self, total_of: Any, shape: Cut, rows: int) -> Any:
        count, over = shape.outs, np.float32(shape.outs)

        @inline
        def store_mix(partial, at, j, start, last, out, beside, width, first):  # type: ignore[no-untyped-def]
            if start <= last:
                mixed = _ZERO
                for s in range(count):
                    value = load_float(beside + ((j * count + s) * width + start) * 4)
                    mixed = add(mixed, multiply(sigmoid(total_of(partial, at + s * rows + j)), value))
                store_float(out + (j * width + start) * 4, divide(mixed, over))

        return store_mix


STORED = _Columns()
