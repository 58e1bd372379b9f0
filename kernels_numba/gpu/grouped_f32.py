"""The grouped matmul in float32, without tensor cores: for compute "f32", where results are compared bit for bit. Simple, not fast.

A block makes 64 rows x 64 outputs (32 of gate and 32 of up), a thread 4 x 4 of them, 32 inputs at a time through shared memory.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32

from kernels_numba.device import Kernel, cuda, inline
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.decode import FLOATS, decoder
from kernels_numba.gpu.groups import TILE_ROWS
from kernels_numba.gpu.moe import silu
from kernels_numba.ptx import fused, load_float4, load_int, load_long, store_float

_THREADS = 256
_STEP = 32
_PITCH = TILE_ROWS + 4  # floats a shared row of 64, so that rows start in other banks
_SHARED = _STEP * _PITCH
_ZERO = np.float32(0)


@functools.cache
def f32_kernel(formats: tuple[str, ...], num_outs: int, width: int, planar: bool, alignments: tuple[int, ...]) -> Kernel:
    """Formats of (gate, up), or of (down,)."""
    glu = len(formats) == 2
    values = _weights(formats[0], num_outs, width, planar, alignments[0])
    up_values = _weights(formats[-1], num_outs, width, planar, alignments[-1])
    per_block = 32 if glu else 64
    out_tiles, last_out, eights = -(-num_outs // per_block), num_outs - 1, width // 8
    steps = -(-width // _STEP)

    def grouped_f32(x, table, tiles, rows, out, offset, up_offset, book, up_book):  # type: ignore[no-untyped-def]
        activations = cuda.shared.array(_SHARED, float32)  # one declaration a line: the simulator names arrays by line
        weights = cuda.shared.array(_SHARED, float32)
        thread = np.int32(cuda.threadIdx.x)
        tile = np.int64(cuda.blockIdx.x) // out_tiles
        first_out = (np.int64(cuda.blockIdx.x) - tile * out_tiles) * per_block
        first_row = np.int64(load_int(tiles + tile * 12 + 4))
        num_rows = load_int(tiles + tile * 12 + 8)
        blob = load_long(table + np.int64(load_int(tiles + tile * 12)) * 8)
        # this thread brings eight inputs of one row and of one output: line 0 to 63, eight `part` of the step
        part, line = thread & 3, thread >> 2
        is_up = glu and line >= 32
        n = min(first_out + (line & 31 if glu else line), last_out)
        at = first_row + (line if line < num_rows else 0)
        row = np.int64(load_int(rows + at * 4)) if rows != 0 else at
        # and makes outputs of rows 4 down .. 4 down + 3: without a gate of 4 across .. + 3, with one two of gate and two of up
        across, down = thread & 15, thread >> 4
        sums = cuda.local.array(16, np.float32)
        for i in range(16):
            sums[i] = _ZERO
        for step in range(steps):
            eight = step * 4 + part
            cuda.syncthreads()
            if eight < eights:
                source = x + (row * width + eight * 8) * 4
                a, b = load_float4(source), load_float4(source + 16)
                _spread(activations, part, line, (a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]))
                if is_up:
                    _spread(weights, part, line, up_values(blob + up_offset, n, eight, up_book))
                else:
                    _spread(weights, part, line, values(blob + offset, n, eight, book))
            cuda.syncthreads()
            for k in range(min(_STEP, width - step * _STEP)):
                for i in range(4):
                    for j in range(4):
                        column = 2 * across + (j & 1) + 32 * (j >> 1) if glu else 4 * across + j
                        left, right = activations[k * _PITCH + 4 * down + i], weights[k * _PITCH + column]
                        sums[4 * i + j] = fused(left, right, sums[4 * i + j])
        for i in range(4):
            if 4 * down + i < num_rows:
                for j in range(2 if glu else 4):
                    column = first_out + (2 * across + j if glu else 4 * across + j)
                    if column < num_outs:
                        value = silu(sums[4 * i + j]) * sums[4 * i + j + 2] if glu else sums[4 * i + j]
                        store_float(out + ((first_row + 4 * down + i) * num_outs + column) * 4, value)

    return Kernel(grouped_f32, "i64 i64 i64 i64 i64 i64 i64 i64 i64", _THREADS)


def _weights(format_name: str, num_outs: int, width: int, planar: bool, alignment: int) -> Any:
    """Device function (base, out, eight, codebook) -> eight float32 weights."""
    use, form = decoder(format_name, planar, alignment), FORMATS[format_name]
    load, values = use.load, use.values
    is_float = format_name in FLOATS
    shift = 0 if is_float else (form.block_values // 8).bit_length() - 1
    blocks_a_row, num_blocks = width // form.block_values, num_outs * width // form.block_values

    @inline
    def weights(base, n, eight, codebook):  # type: ignore[no-untyped-def]
        part = eight if is_float else eight & ((1 << shift) - 1)
        return values(load(base, num_blocks, n * blocks_a_row + (0 if is_float else eight >> shift), part, codebook), part)

    return weights


@inline
def _spread(shared, part, line, v):  # type: ignore[no-untyped-def]
    """Eight inputs of one row or output, input-major."""
    at = part * 8 * _PITCH + line
    shared[at], shared[at + _PITCH], shared[at + 2 * _PITCH], shared[at + 3 * _PITCH] = v[0], v[1], v[2], v[3]
    shared[at + 4 * _PITCH], shared[at + 5 * _PITCH], shared[at + 6 * _PITCH], shared[at + 7 * _PITCH] = v[4], v[5], v[6], v[7]
