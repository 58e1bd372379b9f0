"""A few float32 rows times quantized matrices that a table of addresses names, on the GPU; float32 sums. Knows no expert and no tier.

An address may be of VRAM or of page-locked host memory (UVA): the bytes are read in place, once. A row's bits depend on the row
and the matrix alone: how many lanes share a sum follows from the width, and every sum has one order.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import float32

from kernels_numba.device import Kernel, address, cuda
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.codebooks import codebook_address
from kernels_numba.gpu.float_products import float_cut, float_products
from kernels_numba.gpu.jobs import MAX_ROWS, Jobs
from kernels_numba.gpu.teams import Cut, resident_blocks, team_sums
from kernels_numba.ptx import WORD, load_int, load_long, store_float

_PARAMETERS = "i64 i64 i64 i64 i64 i64 i64 i64"
_ZERO = np.float32(0)


def matvec(x: Any, jobs: Jobs, format_name: str, num_outs: int, out: Any, planar: bool = False, stream: int = 0) -> None:
    """out[j, s] = W_j x[rows[j, s]]: x float32 [R, K], 16-byte aligned; W_j [num_outs, K] at jobs.table[j] + jobs.offset.

    out: float32 [J, S, num_outs]; slots without a row, and jobs whose table entry is 0, are left as they were. Each sum errs by at
    most K / 32 + 13 roundings.
    """
    width = int(x.shape[1])
    FORMATS[format_name].row_bytes(width)
    pointers = (address("x", x, "float32", (-1, width)), *jobs.addresses(),
                address("out", out, "float32", (jobs.count, jobs.slots, num_outs)))  # fmt: skip
    if pointers[0] % 16 and width % 8 == 0:
        raise ValueError("x must start at a multiple of 16 bytes")
    shape = float_cut(width, jobs.count * num_outs)
    for first in range(0, jobs.slots, MAX_ROWS):
        kernel = matvec_kernel(format_name, num_outs, width, shape, min(jobs.slots - first, MAX_ROWS), planar, jobs.alignment)
        blocks = jobs.count * shape.blocks(num_outs)
        kernel.launch(blocks, stream, *pointers, jobs.offset, jobs.slots, first, codebook_address(format_name))


@functools.cache
def matvec_kernel(format_name: str, num_outs: int, width: int, shape: Cut, rows: int, planar: bool, alignment: int) -> Kernel:
    """A block a tile of one job's outputs, a team of lanes a few of them, `rows` rows of x at once."""
    body = _body(format_name, num_outs, width, shape, rows, planar, alignment)
    return Kernel(body, _PARAMETERS, shape.threads, resident_blocks(shape, rows))


def _body(format_name: str, num_outs: int, width: int, shape: Cut, rows: int, planar: bool, alignment: int) -> Callable[..., None]:
    form, products = FORMATS[format_name], float_products(format_name, width, shape, rows, planar, alignment)
    multiply, num_floats, num_words = products.function, products.num_floats, products.num_words
    lanes, outs, teams, tiles, made = shape.lanes, shape.outs, shape.teams, shape.blocks(num_outs), shape.outs * rows
    row_bytes, blocks_a_row = form.row_bytes(width), width // form.block_values
    num_blocks = num_outs * blocks_a_row if planar else 0
    gather, total_of, held = team_sums(shape, made)

    def matvec_tile(x, table, row_table, out, offset, slots, first, codebook):  # type: ignore[no-untyped-def]
        partial = cuda.shared.array(held, float32)
        thread = np.int32(cuda.threadIdx.x)
        team, lane = thread // lanes, thread % lanes
        job = np.int64(cuda.blockIdx.x) // tiles
        tile = (np.int64(cuda.blockIdx.x) - job * tiles) * (teams * outs)
        matrix = load_long(table + job * 8)
        if matrix == 0:
            return
        chosen = row_table + (job * slots + first) * 4
        places = cuda.local.array(rows, np.int64)
        for r in range(rows):
            places[r] = x + max(load_int(chosen + r * 4), 0) * np.int64(width * 4)
        bases = cuda.local.array(outs, np.int64)
        blocks = cuda.local.array(outs, np.int64)
        firsts = cuda.local.array(outs, np.int64)
        for o in range(outs):
            n = min(tile + team * outs + o, num_outs - 1)
            bases[o] = matrix + offset + (0 if planar else n * row_bytes)
            blocks[o] = num_blocks
            firsts[o] = n * blocks_a_row if planar else 0
        sums = cuda.local.array(made, np.float32)
        for j in range(made):
            sums[j] = _ZERO
        floats = cuda.local.array(num_floats, np.float32)
        words = cuda.local.array(num_words, WORD)
        multiply(sums, floats, words, places, np.int64(0), bases, blocks, firsts, lane, codebook)
        gather(sums, partial, team, lane)
        cuda.syncthreads()
        for i in range(thread, teams * made, teams * lanes):
            of_team = i // made
            o = (i - of_team * made) // rows
            r = i - of_team * made - o * rows
            n = tile + of_team * outs + o
            if n < num_outs and load_int(chosen + r * 4) >= 0:
                store_float(out + ((job * slots + first + r) * num_outs + n) * 4, total_of(partial, i))

    return matvec_tile
