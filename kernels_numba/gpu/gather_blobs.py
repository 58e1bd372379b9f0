"""Blobs of page-locked host memory to the card, by a kernel that reads the bus in whole lines. Knows no format and no expert.

A product that reads its weights over the bus in place asks for a few bytes a lane, and reaches half of the bus; a copy of 16 bytes a
thread reaches nearly all of it, and the product then reads what the L2 cache still has.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from typing import Any

from kernels_numba.device import Kernel, address, cuda
from kernels_numba.ptx import WORD, load8, load16, load128, load_int, load_long, store16, store64, store128

_THREADS = 256
_LOADS = 4  # in flight at once, a thread
_WORDS = 4 * _LOADS
_STEP = 16 * _THREADS
_PART = _STEP * _LOADS


def gather_blobs(addresses: Any, chosen: Any, near: Any, into: Any, found: Any, first: int, num_bytes: int, stream: int = 0) -> None:
    """found[j] = addresses[j] where blob j lies on the card already, else into[j], after its bytes [first, first + num_bytes) went there.

    addresses, found: int64 [J], 0 where there is no blob; chosen int32 [J], near uint8 [E]: blob j is on the card where near[chosen[j]]
    is not 0; both None: none is. into: uint8 [J, stride]. Addresses, stride and `first` are multiples of 16, `num_bytes` of 2.
    """
    jobs, stride = (int(size) for size in into.shape)
    if first % 16 or num_bytes % 2 or stride % 16 or first < 0 or first + num_bytes > stride:
        raise ValueError(f"bytes {first} to {first + num_bytes} of blobs in {stride} bytes: wanted multiples of 16, 2 and 16 that fit")
    known = (0, 0) if near is None else (address("chosen", chosen, "int32", (jobs,)), address("near", near, "uint8", (-1,)))
    pointers = (address("addresses", addresses, "int64", (jobs,)), *known, address("into", into, "uint8", (jobs, stride)),
                address("found", found, "int64", (jobs,)))  # fmt: skip
    if pointers[3] % 16:
        raise ValueError("into must start at a multiple of 16 bytes")
    parts = max(1, -(-num_bytes // _PART))
    blobs_kernel().launch(jobs * parts, stream, *pointers, stride, first, num_bytes, parts)


@functools.cache
def blobs_kernel() -> Kernel:
    """A block a part of a blob, its loads all asked for before the first is stored."""

    def gather(addresses, chosen, near, into, found, stride, first, num_bytes, parts):  # type: ignore[no-untyped-def]
        thread, unit = cuda.threadIdx.x, cuda.blockIdx.x
        job = unit // parts
        part = unit - job * parts
        source, target = load_long(addresses + job * 8), into + job * stride
        here = source == 0
        if near != 0 and not here:
            here = load8(near + load_int(chosen + job * 4)) != 0
        if part == 0 and thread == 0:
            store64(found + job * 8, source if here else target)
        if here:
            return
        end, begin = first + num_bytes, first + part * _PART + thread * 16
        words = cuda.local.array(_WORDS, WORD)
        for u in range(_LOADS):
            at = begin + u * _STEP
            if at + 16 <= end:
                w = load128(source + at)
                words[4 * u], words[4 * u + 1], words[4 * u + 2], words[4 * u + 3] = w[0], w[1], w[2], w[3]
        for u in range(_LOADS):
            at = begin + u * _STEP
            if at + 16 <= end:
                store128(target + at, words[4 * u], words[4 * u + 1], words[4 * u + 2], words[4 * u + 3])
        rest = num_bytes & 15
        if part == parts - 1 and thread * 2 < rest:
            at = end - rest + thread * 2
            store16(target + at, load16(source + at))

    return Kernel(gather, "i64 i64 i64 i64 i64 i64 i64 i64 i64", _THREADS)
