"""The grouped matmul on tensor cores: weights are dequantized into shared memory, never into device memory. Knows no expert's address.

A block makes 64 rows x 128 outputs (64 of gate and 64 of up) with eight warps of 32 x 32, 64 inputs at a time, twice buffered: while
the tensor cores work on one step, the next one's activations are copied in the background and its packed weights wait in registers.
A row of 64 values is 128 bytes in shared memory, its 16-byte chunks swizzled by the row, so no access meets a bank twice.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import int32

from kernels_numba.device import Kernel, cuda, inline
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.decode import FLOATS, decoder
from kernels_numba.gpu.groups import TILE_ROWS
from kernels_numba.gpu.moe import silu
from kernels_numba.ptx import (
    copy_async,
    copy_commit,
    copy_wait,
    load_int,
    load_long,
    load_matrix4,
    mma_bf16,
    mma_f16,
    pack_bf16,
    pack_f16,
    put_shared128,
    shared_place,
    store32,
    store_float2,
)  # fmt: skip

_THREADS = 256
_STEP = 64  # inputs a step
_ROW_BYTES = _STEP * 2
_A_BYTES, _B_BYTES = TILE_ROWS * _ROW_BYTES, 128 * _ROW_BYTES
_A_SHARED, _B_SHARED = 2 * _A_BYTES // 4, 2 * _B_BYTES // 4  # words
_ZERO = np.float32(0)


@functools.cache
def mma_kernel(formats: tuple[str, ...], num_outs: int, width: int, compute: str, planar: bool, alignments: tuple[int, ...]) -> Kernel:
    """Formats of (gate, up), or of (down,). `compute`: bf16 or f16."""
    glu = len(formats) == 2
    mma, pack = (mma_bf16, pack_bf16) if compute == "bf16" else (mma_f16, pack_f16)
    fetch, put = _weights(formats[0], num_outs, width, planar, alignments[0], pack)
    fetch_up, put_up = _weights(formats[-1], num_outs, width, planar, alignments[-1], pack)
    same = formats[0] == formats[-1] and alignments[0] == alignments[-1]
    multiply_step, finish = _multiply_step(mma), _finish(glu, num_outs, pack)
    steps, per_block, apart = -(-width // _STEP), 64 if glu else 128, 16 if glu else 32
    out_tiles, last_out, row_bytes = -(-num_outs // per_block), num_outs - 1, width * 2
    next_rows = 32 * _ROW_BYTES

    def grouped_mma(x, table, tiles, rows, out, offset, up_offset, book, up_book):  # type: ignore[no-untyped-def]
        activations = cuda.shared.array(_A_SHARED, int32)  # one declaration a line: the simulator names arrays by line
        weights = cuda.shared.array(_B_SHARED, int32)
        a_base, b_base = shared_place(activations), shared_place(weights)
        thread = np.int32(cuda.threadIdx.x)
        tile = np.int64(cuda.blockIdx.x) // out_tiles
        first_out = (np.int64(cuda.blockIdx.x) - tile * out_tiles) * per_block
        first_row = np.int64(load_int(tiles + tile * 12 + 4))
        num_rows = load_int(tiles + tile * 12 + 8)
        blob = load_long(table + np.int64(load_int(tiles + tile * 12)) * 8)
        # this thread copies 16-byte chunk `part` of rows line, line + 32 of the activations, and of line .. line + 96 of the weights
        part, line = thread & 7, thread >> 3
        place = line * _ROW_BYTES + ((part ^ (line & 7)) << 4)
        is_up = glu and line >= 16
        base, codebook = blob + (up_offset if is_up else offset), up_book if is_up else book
        column = first_out + (line & 15 if glu else line)
        n0, n1 = np.int32(min(column, last_out)), np.int32(min(column + apart, last_out))
        n2, n3 = np.int32(min(column + 2 * apart, last_out)), np.int32(min(column + 3 * apart, last_out))
        has0, has1 = line < num_rows, line + 32 < num_rows
        source0 = x + _row_of(rows, first_row + (line if has0 else 0)) * row_bytes + part * 16
        source1 = x + _row_of(rows, first_row + (line + 32 if has1 else 0)) * row_bytes + part * 16
        sums = cuda.local.array(32, np.float32)
        for i in range(32):
            sums[i] = _ZERO
        lane, warp = thread & 31, thread >> 5
        for step in range(-1, steps):
            # step -1 fills the first buffers; then each step multiplies one pair of buffers while the other is filled
            odd = step & 1
            a_next, b_next = a_base + (1 - odd) * _A_BYTES + place, b_base + (1 - odd) * _B_BYTES + place
            copy_wait()
            cuda.syncthreads()
            following = step + 1
            more = following < steps
            if more:
                inside = following * _STEP + part * 8 < width
                _copy(a_next, source0 + following * _ROW_BYTES, has0 and inside, x)
                _copy(a_next + next_rows, source1 + following * _ROW_BYTES, has1 and inside, x)
                copy_commit()
            else:
                following = 0  # loads that nobody uses, of bytes that are there
            if same:
                raw0, raw1 = fetch(base, n0, following, part, codebook), fetch(base, n1, following, part, codebook)
                raw2, raw3 = fetch(base, n2, following, part, codebook), fetch(base, n3, following, part, codebook)
            if step >= 0:
                multiply_step(a_base + odd * _A_BYTES, b_base + odd * _B_BYTES, lane, warp, sums)
            if more and same:
                put(b_next, raw0, following, part)
                put(b_next + next_rows, raw1, following, part)
                put(b_next + 2 * next_rows, raw2, following, part)
                put(b_next + 3 * next_rows, raw3, following, part)
            elif more and is_up:
                put_up(b_next, fetch_up(base, n0, following, part, codebook), following, part)
                put_up(b_next + next_rows, fetch_up(base, n1, following, part, codebook), following, part)
                put_up(b_next + 2 * next_rows, fetch_up(base, n2, following, part, codebook), following, part)
                put_up(b_next + 3 * next_rows, fetch_up(base, n3, following, part, codebook), following, part)
            elif more:
                put(b_next, fetch(base, n0, following, part, codebook), following, part)
                put(b_next + next_rows, fetch(base, n1, following, part, codebook), following, part)
                put(b_next + 2 * next_rows, fetch(base, n2, following, part, codebook), following, part)
                put(b_next + 3 * next_rows, fetch(base, n3, following, part, codebook), following, part)
        finish(sums, out, first_row, num_rows, first_out, lane, warp)

    return Kernel(grouped_mma, "i64 i64 i64 i64 i64 i64 i64 i64 i64", _THREADS, 2)


def _weights(format_name: str, num_outs: int, width: int, planar: bool, alignment: int, pack: Any) -> tuple[Any, Any]:
    """The weights that eight inputs of a step have in one output: part `part` of the step's 64 values.

    fetch(base, out, step, part, codebook) -> raw words; put(place, raw, step, part): as 16-bit values to shared memory.
    """
    use, form = decoder(format_name, planar, alignment), FORMATS[format_name]
    load, values = use.load, use.values
    is_float = format_name in FLOATS
    shift = 0 if is_float else (form.block_values // 8).bit_length() - 1  # a block has 1 << shift parts, a step 8
    blocks_a_row, num_blocks = width // form.block_values, num_outs * width // form.block_values
    is_small, has_tail = shift <= 3, width % _STEP != 0

    @inline
    def part_of(step, part):  # type: ignore[no-untyped-def]
        if is_float:
            return step * 8 + part
        if is_small:
            return part & ((1 << shift) - 1)
        return ((step << 3) & ((1 << shift) - 1)) + part

    @inline
    def fetch(base, n, step, part, codebook):  # type: ignore[no-untyped-def]
        if has_tail and step * _STEP + part * 8 >= width:
            step, part = 0, 0
        block = n * blocks_a_row
        if not is_float:
            block += (step << (3 - shift)) + (part >> shift) if is_small else step >> (shift - 3)
        return load(base, num_blocks, block, part_of(step, part), codebook)

    @inline
    def put(place, raw, step, part):  # type: ignore[no-untyped-def]
        if has_tail and step * _STEP + part * 8 >= width:
            put_shared128(place, 0, 0, 0, 0)
        else:
            v = values(raw, part_of(step, part))
            put_shared128(place, pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]))

    return fetch, put


@inline
def _row_of(rows, at):  # type: ignore[no-untyped-def]
    """The row of x that a sorted row is."""
    if rows == 0:
        return np.int64(at)
    return np.int64(load_int(rows + at * 4))


@inline
def _copy(place, source, valid, anywhere):  # type: ignore[no-untyped-def]
    copy_async(place, source if valid else anywhere, 16 if valid else 0)


def _multiply_step(mma: Any) -> Any:
    """Device function: a warp's 32 x 32 sums over the 64 inputs in shared memory."""
    product = _tile_product(mma)

    @inline
    def multiply_step(a_start, b_start, lane, warp, sums):  # type: ignore[no-untyped-def]
        # the row and the half of a 16-value chunk pair whose 16 bytes this lane names to ldmatrix
        a_row, a_half = (warp & 1) * 32 + (lane & 15), lane >> 4
        b_row, b_half = (warp >> 1) * 32 + (lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1
        a_at, b_at = a_start + a_row * _ROW_BYTES, b_start + b_row * _ROW_BYTES
        for k in range(4):
            a_chunk, b_chunk = ((2 * k + a_half) ^ (a_row & 7)) << 4, ((2 * k + b_half) ^ (b_row & 7)) << 4
            a0, a1 = load_matrix4(a_at + a_chunk), load_matrix4(a_at + a_chunk + 16 * _ROW_BYTES)
            b0, b1 = load_matrix4(b_at + b_chunk), load_matrix4(b_at + b_chunk + 16 * _ROW_BYTES)
            product(sums, 0, a0, b0[0], b0[1])
            product(sums, 4, a0, b0[2], b0[3])
            product(sums, 8, a0, b1[0], b1[1])
            product(sums, 12, a0, b1[2], b1[3])
            product(sums, 16, a1, b0[0], b0[1])
            product(sums, 20, a1, b0[2], b0[3])
            product(sums, 24, a1, b1[0], b1[1])
            product(sums, 28, a1, b1[2], b1[3])

    return multiply_step


def _tile_product(mma: Any) -> Any:
    @inline
    def product(sums, i, a, b0, b1):  # type: ignore[no-untyped-def]
        c = mma(a[0], a[1], a[2], a[3], b0, b1, sums[i], sums[i + 1], sums[i + 2], sums[i + 3])
        sums[i], sums[i + 1], sums[i + 2], sums[i + 3] = c[0], c[1], c[2], c[3]

    return product


def _finish(glu: bool, num_outs: int, pack: Any) -> Any:
    """Device function: a warp's sums to device memory, past no row of the tile and no output of the matrix.

    sums[16 m + 4 n + i] is row 16 m + 8 (i // 2) + lane // 4, output 8 n + 2 (lane % 4) + i % 2 of the warp's 32 x 32; with a gate,
    n = 0, 1 are the gate's and n = 2, 3 the up's of the same 16 outputs.
    """

    @inline
    def finish_down(sums, out, first_row, num_rows, first_out, lane, warp):  # type: ignore[no-untyped-def]
        for m in range(2):
            for n in range(4):
                for half in range(2):
                    row = (warp & 1) * 32 + m * 16 + half * 8 + (lane >> 2)
                    column = first_out + (warp >> 1) * 32 + n * 8 + 2 * (lane & 3)
                    if row < num_rows and column < num_outs:
                        at = 16 * m + 4 * n + 2 * half
                        store_float2(out + ((first_row + row) * num_outs + column) * 4, sums[at], sums[at + 1])

    @inline
    def finish_glu(sums, out, first_row, num_rows, first_out, lane, warp):  # type: ignore[no-untyped-def]
        for m in range(2):
            for n in range(2):
                for half in range(2):
                    row = (warp & 1) * 32 + m * 16 + half * 8 + (lane >> 2)
                    column = first_out + (warp >> 1) * 16 + n * 8 + 2 * (lane & 3)
                    if row < num_rows and column < num_outs:
                        at = 16 * m + 4 * n + 2 * half
                        low, high = silu(sums[at]) * sums[at + 8], silu(sums[at + 1]) * sums[at + 9]
                        store32(out + ((first_row + row) * num_outs + column) * 2, pack(low, high))

    return finish_glu if glu else finish_down
