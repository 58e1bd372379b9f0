"""Quantized blocks to float32, float16 or bfloat16 on the GPU. One thread makes eight values. Knows no tensor shape.

float32 results equal reference.dequantize bit for bit; the others are those, rounded to nearest even.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import int32

from kernels_numba.device import Kernel, address, cuda, inline
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.codebooks import codebook_address, codebook_words
from kernels_numba.gpu.decode import FLOATS, decoder, single_value
from kernels_numba.ptx import (
    as_float,
    as_word,
    load16,
    load32,
    load_int,
    pack_bf16,
    pack_f16,
    shared_address,
    shuffle_xor,
    store16,
    store128,
    store_float,
    store_float4,
)  # fmt: skip

OUTPUTS = {"f32": ("float32", 4), "f16": ("bits16", 2), "bf16": ("bits16", 2)}
_THREADS = 256


def dequantize(data: Any, format_name: str, out: Any, output: str = "f32", planar: bool = False, stream: int = 0) -> None:
    """`data`: uint8 [n blocks x block bytes] on the device, 2-byte aligned. `out`: float32, or 16-bit bits, [values]; 16-byte aligned."""
    form = FORMATS[format_name]
    source = address("data", data, "uint8", (-1,))
    if int(data.shape[0]) % form.block_bytes:
        raise ValueError(f"{int(data.shape[0])} bytes are not whole {format_name} blocks of {form.block_bytes}")
    blocks = int(data.shape[0]) // form.block_bytes
    target = address("out", out, OUTPUTS[output][0], (blocks * form.block_values,))
    dequantize_at(source, blocks, format_name, target, output, planar, stream)


def dequantize_at(source: int, blocks: int, format_name: str, target: int, output: str, planar: bool = False, stream: int = 0) -> None:
    """The same on addresses: `blocks` blocks at `source`, a pinned host blob's too, to values at `target`. Checks alignment only."""
    form = FORMATS[format_name]
    if target % 16 or source % 2:
        raise ValueError("dequantize wants blocks at a multiple of 2 bytes and results at a multiple of 16")
    values = blocks * form.block_values
    if format_name in FLOATS and values % 8:
        kernel, threads = singles_kernel(format_name, output), values
    else:
        kernel, threads = parts_kernel(format_name, output, planar, min(source & -source, 16) if source else 16), values // 8
    each = 1 if format_name in FLOATS and values % 8 else parts_a_thread(format_name)
    kernel.launch(-(-threads // (each * _THREADS)), stream, source, blocks, target, threads, codebook_address(format_name))


@functools.cache
def parts_kernel(format_name: str, output: str, planar: bool, alignment: int) -> Kernel:
    """One thread a part of eight values; with a codebook, several such in turn, and the book in shared memory."""
    use, store = decoder(format_name, planar, alignment), _store_part(output)
    load, values = use.load, use.values
    is_float, book_words = format_name in FLOATS, codebook_words(format_name)
    shift = 0 if is_float else (FORMATS[format_name].block_values // 8).bit_length() - 1
    turns, shared_words = parts_a_thread(format_name), max(1, book_words)

    def dequantize_parts(source, blocks, target, parts, table):  # type: ignore[no-untyped-def]
        if book_words:
            book = cuda.shared.array(shared_words, int32)
            for word in range(cuda.threadIdx.x, book_words, _THREADS):
                book[word] = load_int(table + word * 4)
            table = shared_address(book)
            cuda.syncthreads()
        first = np.int64(cuda.blockIdx.x) * (turns * _THREADS) + cuda.threadIdx.x
        for turn in range(turns):
            i = first + turn * _THREADS
            at = min(i, parts - 1)
            block = 0 if is_float else at >> shift
            part = at if is_float else at & ((1 << shift) - 1)
            store(target, i, parts, values(load(source, blocks, block, part, table), part))

    return Kernel(dequantize_parts, "i64 i64 i64 i64 i64", _THREADS)


def parts_a_thread(format_name: str) -> int:
    """How often a thread goes: enough to be worth the copy of a codebook."""
    words = codebook_words(format_name)
    return 16 if words > 1024 else 8 if words else 1


@functools.cache
def singles_kernel(format_name: str, output: str) -> Kernel:
    """One thread a value, for float tensors that eight does not divide."""
    widen, load = single_value(format_name), load32 if format_name == "F32" else load16
    stored, size = FORMATS[format_name].block_bytes, OUTPUTS[output][1]
    store = _store_single(output)

    def dequantize_singles(source, blocks, target, count, table):  # type: ignore[no-untyped-def]
        i = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        if i < count:
            store(target + i * size, widen(load(source + i * stored)))

    return Kernel(dequantize_singles, "i64 i64 i64 i64 i64", _THREADS)


def _store_part(output: str) -> Any:
    """Device function (target, part, parts, eight values): store them in a type, unless the part is none of `parts`."""
    if output == "f32":
        return _store_floats
    pack = {"f16": pack_f16, "bf16": pack_bf16}[output]

    @inline
    def halves(target, i, parts, v):  # type: ignore[no-untyped-def]
        if i < parts:
            store128(target + i * 16, pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]))

    return halves


@inline
def _store_floats(target, i, parts, v):  # type: ignore[no-untyped-def]
    """Two lanes swap halves, so that each of their two stores fills whole sectors of 32 bytes between them."""
    odd = i & 1
    got0, got1 = _swapped(v[0] if odd else v[4]), _swapped(v[1] if odd else v[5])
    got2, got3 = _swapped(v[2] if odd else v[6]), _swapped(v[3] if odd else v[7])
    quarter = 2 * (i - odd) + odd  # of 16 bytes
    if quarter < 2 * parts:
        at = target + quarter * 16
        store_float4(at, got0 if odd else v[0], got1 if odd else v[1], got2 if odd else v[2], got3 if odd else v[3])
    if quarter + 2 < 2 * parts:
        at = target + (quarter + 2) * 16
        store_float4(at, v[4] if odd else got0, v[5] if odd else got1, v[6] if odd else got2, v[7] if odd else got3)


@inline
def _swapped(value):  # type: ignore[no-untyped-def]
    return as_float(shuffle_xor(as_word(value), 1))


def _store_single(output: str) -> Any:
    if output == "f32":
        return store_float
    pack = {"f16": pack_f16, "bf16": pack_bf16}[output]

    @inline
    def half(at, value):  # type: ignore[no-untyped-def]
        store16(at, pack(value, value))

    return half
