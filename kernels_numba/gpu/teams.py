"""How rows are multiplied with stacked matrices: teams of lanes, each with a few neighbouring outputs. Knows no format and no arithmetic.

How many lanes share a sum follows from the width alone, so that an output's bits depend on its row of x and its row of weights, never
on how many outputs, matrices or rows there are.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numba import float32

from kernels_numba.device import Kernel, cuda, inline
from kernels_numba.gpu.warp import lane_sums
from kernels_numba.ptx import WORD, add, load_int, load_long

_THREADS = 128
_MOST_LANES = 512
_BLOCKS_WANTED = 132  # the multiprocessors of a large GPU; fewer outputs a team where there would be fewer blocks
_ZERO = np.float32(0)


@dataclass(frozen=True)
class Stored:
    """What a kernel is compiled for, of a stack: how many matrices, and how one row of them lies."""

    count: int
    width: int
    row_bytes: int
    blocks_a_row: int
    planar: bool


@dataclass(frozen=True)
class Cut:
    """How the work is cut: `lanes` lanes, a team, make `outs` outputs: neighbours, or `apart` of each other where that is not 0."""

    lanes: int
    outs: int
    apart: int = 0

    @property
    def threads(self) -> int:
        return max(self.lanes, _THREADS)

    @property
    def teams(self) -> int:
        return self.threads // self.lanes

    @property
    def step(self) -> int:
        """From a team's first output to the next team's."""
        return 1 if self.apart else self.outs

    def blocks(self, num_outs: int) -> int:
        """Of threads, each of whole teams."""
        return -(-(self.apart or num_outs) // (self.teams * self.step))


@functools.cache
def cut(parts: int, num_outs: int, most_outs: int = 4) -> Cut:
    """For rows of `parts` parts, of which a lane takes one a step: at least two steps where it can. Bits depend on the lanes."""
    lanes = next(n for n in (32, 16, 8, 4, 2, 1) if -(-parts // n) * n * 8 <= parts * 9)  # at most an eighth of them idle
    while 32 <= lanes < _MOST_LANES and lanes * 4 <= parts:
        lanes *= 2
    wanted = (n for n in (4, 2) if n <= most_outs and Cut(lanes, n).blocks(num_outs) >= _BLOCKS_WANTED)
    return Cut(lanes, next(wanted, 1))


@dataclass(frozen=True)
class Multiply:
    """A device function (sums, floats, words, places, scales, bases, blocks, firsts, lane, codebook) for a lane's share of a team's sums.

    It adds to sums[o * rows + r] what this lane has of output o of row r, whose x is at places[r]. Output o's weights begin at block
    firsts[o] of the tensor of blocks[o] blocks at bases[o]; where the tensor is not planar, at bases[o] itself. It may use num_floats
    floats and num_words words.
    """

    function: Any
    num_floats: int = 1
    num_words: int = 1
    value_bytes: int = 4  # of x


class Finish(Protocol):
    """What becomes of whole sums. A kernel is compiled for each, so equal ones are equal."""

    def device_function(self, total_of: Any, shape: Cut, rows: int) -> Any:
        """(partial, at, j, start, last, out, beside, width, first), for the j-th result of the team whose sums begin at `at` and whose

        first output is `start`. A team has `outs` times `rows` results, output by output; `rows` where its outputs lie apart, as they end
        in one. total_of(partial, at + i) is its i-th sum.
        """


def team_kernel(multiply: Multiply, shape: Cut, rows: int, stored: Stored, finish: Finish) -> Kernel:
    """The kernel around both."""
    parameters = "i64 i64 i64 i64 i64 i64 i64 i64 i64 i64"
    return Kernel(_body(multiply, shape, rows, stored, finish), parameters, shape.threads, resident_blocks(shape, rows))


def resident_blocks(shape: Cut, rows: int) -> int:
    """Blocks a multiprocessor, of the registers that `rows` rows need."""
    return round(65_536 / (72 if rows <= 2 else 128) / shape.threads)


def team_sums(shape: Cut, made: int) -> tuple[Any, Any, int]:
    """Two device functions, to be called before and after a barrier, and the floats of shared memory that they pass.

    gather(sums, partial, team, lane): the lanes' `made` sums; total(partial, i): the whole sum i - t * made of team t = i // made.
    """
    warps = max(1, shape.lanes // 32)
    sum_lanes, kept, between = lane_sums(min(shape.lanes, 32), made)

    @inline
    def gather(sums, partial, team, lane):  # type: ignore[no-untyped-def]
        mine = sum_lanes(sums, lane)
        if lane % between == 0:
            for j in range(kept):
                partial[(team * warps + lane // 32) * made + mine + j] = sums[j]

    @inline
    def total(partial, i):  # type: ignore[no-untyped-def]
        at = i // made * (warps - 1) * made + i
        whole = partial[at]
        for warp in range(1, warps):
            whole = add(whole, partial[at + warp * made])
        return whole

    return gather, total, shape.teams * warps * made


def _body(made_by: Multiply, shape: Cut, rows: int, stored: Stored, finish: Finish) -> Callable[..., None]:
    lanes, outs, teams, step = shape.lanes, shape.outs, shape.teams, shape.step
    count, row_bytes, blocks_a_row, planar = stored.count, stored.row_bytes, stored.blocks_a_row, stored.planar
    made, x_bytes = outs * rows, stored.width * made_by.value_bytes
    apart, results = shape.apart, rows if shape.apart else made
    multiply, num_floats, num_words = made_by.function, made_by.num_floats, made_by.num_words
    gather, total_of, held = team_sums(shape, made)
    end_sums = finish.device_function(total_of, shape, rows)

    def dense_team(x, scales, table, ends, out, beside, num_outs, width, first, codebook):  # type: ignore[no-untyped-def]
        partial = cuda.shared.array(held, float32)
        thread = np.int32(cuda.threadIdx.x)
        team, lane = thread // lanes, thread % lanes
        first_out = np.int32(cuda.blockIdx.x) * np.int32(teams * step)
        last, start = np.int32((apart if apart else num_outs) - 1), np.int32(first_out + team * step)
        bases = cuda.local.array(outs, np.int64)
        blocks = cuda.local.array(outs, np.int64)
        firsts = cuda.local.array(outs, np.int64)
        for o in range(outs):
            n = np.int32(min(start, last) + o * apart) if apart else min(np.int32(start + o), last)
            base, begin, end = load_long(table), np.int32(0), load_int(ends)
            for m in range(1, count):  # without a branch: all of the table is read at once
                other, edge, stop = load_long(table + m * 8), load_int(ends + (m - 1) * 4), load_int(ends + m * 4)
                here = n >= edge
                base, begin, end = (other if here else base), (edge if here else begin), (stop if here else end)
            bases[o] = base if planar else base + np.int64(np.int32(n - begin)) * row_bytes
            blocks[o] = np.int64(np.int32(end - begin)) * blocks_a_row if planar else 0
            firsts[o] = np.int64(np.int32(n - begin)) * blocks_a_row if planar else 0
        sums = cuda.local.array(made, np.float32)
        for j in range(made):
            sums[j] = _ZERO
        floats = cuda.local.array(num_floats, np.float32)  # here: in the simulator a kernel's own module alone has cuda.local
        words = cuda.local.array(num_words, WORD)
        places = cuda.local.array(rows, np.int64)
        for r in range(rows):
            places[r] = x + r * x_bytes
        multiply(sums, floats, words, places, scales, bases, blocks, firsts, lane, codebook)
        gather(sums, partial, team, lane)
        cuda.syncthreads()
        for i in range(thread, teams * results, teams * lanes):
            of_team = i // results
            j, begin = i - of_team * results, first_out + of_team * step
            end_sums(partial, of_team * made, j, begin, last, out, beside, width, first)

    return dense_team
