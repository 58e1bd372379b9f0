"""The best blocks of each token on the GPU, ascending: any number of blocks, ties to the lower id. Knows no queries and no keys.

The score that the last block chosen has is found eight bits at a time by counting, so a row is read six times and never sorted;
the ids come out in order because each warp takes one stretch of the row. Scores are compared as integers that sort as they do.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import int32, int64

from kernels_numba.device import Kernel, address, cuda, inline
from kernels_numba.ptx import as_word, ballot, bits, count_bits, load_float, shuffle_xor, store32

_THREADS = 128
_WARPS = _THREADS // 32
_WORD = 2**32 - 1
_BINS = 256
_MAX_BLOCKS = 2**29


def select_blocks(scores: Any, block: int, start: int, chosen: Any, stream: int = 0) -> None:
    """scores float32 [T, n] -> chosen int32 [T, b]: ids, ascending, of the b best of token t's (start + t + 1) // block whole blocks.

    Equal scores go to the lower id (torch.topk, and so the CPU model, leaves the choice among them open); -0 is 0, and a NaN ranks
    below -inf. A token that has at most b whole blocks gets 0 .. b - 1, of which it reads only those it has.
    """
    (tokens, width), count = (int(size) for size in scores.shape), int(chosen.shape[1])
    if count < 1 or start < 0 or width < (start + tokens) // block or width > _MAX_BLOCKS:
        raise ValueError(f"{count} of {width} blocks for {tokens} tokens from {start} on: wanted at least 1 of {(start + tokens) // block}")
    pointers = address("scores", scores, "float32", (tokens, width)), address("chosen", chosen, "int32", (tokens, count))
    select_kernel(block).launch(tokens, stream, *pointers, width, count, start)


@functools.cache
def select_kernel(block: int) -> Kernel:
    """A block of threads a token."""

    def select_row(scores, chosen, width, count, start):  # type: ignore[no-untyped-def]
        bins = cuda.shared.array(_BINS, int32)  # one declaration a line: the simulator names arrays by line
        sixteens = cuda.shared.array(16, int32)
        found = cuda.shared.array(2, int64)  # the bits of the last score so far, and how many of the scores with these bits are chosen
        before = cuda.shared.array(_PER_WARP, int32)  # scores above the last one, and scores equal to it, in each warp's stretch
        thread, token = np.int32(cuda.threadIdx.x), np.int64(cuda.blockIdx.x)
        row, out = scores + token * width * 4, chosen + token * count * 4
        num_blocks = np.int32((start + token + 1) // block)
        if num_blocks <= count:
            for i in range(thread, count, _THREADS):
                store32(out + np.int64(i) * 4, i)
            return
        last, ties = np.int64(0), np.int32(count)
        for turn in range(4):
            shift = 24 - 8 * turn
            for i in range(thread, _BINS, _THREADS):
                bins[i] = 0
            cuda.syncthreads()
            for i in range(thread, num_blocks, _THREADS):
                rank = _rank(load_float(row + np.int64(i) * 4))
                if rank >> (shift + 8) == last:
                    cuda.atomic.add(bins, np.int32((rank >> shift) & 255), 1)
            cuda.syncthreads()
            if thread < 16:
                total = np.int32(0)
                for i in range(16):
                    total += bins[16 * thread + i]
                sixteens[thread] = total
            cuda.syncthreads()
            if thread == 0:
                _find(bins, sixteens, found, last, ties)
            cuda.syncthreads()
            last, ties = found[0], np.int32(found[1])
        # each warp takes one stretch of the row, 32 blocks a step; all warps take as many steps
        lane, warp = thread & 31, thread >> 5
        steps = (num_blocks + _THREADS - 1) // _THREADS
        first = warp * steps * 32 + lane
        above, equal = np.int32(0), np.int32(0)
        for step in range(steps):
            i = first + step * 32
            if i < num_blocks:
                rank = _rank(load_float(row + np.int64(i) * 4))
                above += np.int32(rank > last)
                equal += np.int32(rank == last)
        above, equal = _warp_count(above), _warp_count(equal)
        if lane == 0:
            before[2 * warp], before[2 * warp + 1] = above, equal
        cuda.syncthreads()
        above, equal = np.int32(0), np.int32(0)
        for other in range(_WARPS):
            if other < warp:
                above += before[2 * other]
                equal += before[2 * other + 1]
        lower = (np.int64(1) << lane) - 1  # the lanes before this one
        for step in range(steps):
            i = first + step * 32
            rank = np.int64(-1)
            if i < num_blocks:
                rank = _rank(load_float(row + np.int64(i) * 4))
            higher, same = ballot(np.int32(rank > last)), ballot(np.int32(rank == last))
            tie = equal + count_bits(bits(same, 0, lower))
            place = above + count_bits(bits(higher, 0, lower)) + min(tie, ties)
            if rank > last or (rank == last and tie < ties):
                store32(out + np.int64(place) * 4, i)
            above += count_bits(higher)
            equal += count_bits(same)

    return Kernel(select_row, "i64 i64 i64 i64 i64", _THREADS)


_PER_WARP = 2 * _WARPS


@inline
def _rank(score):  # type: ignore[no-untyped-def]
    """A number of 32 bits that sorts by score; NaN is 0."""
    rank = np.int64(0)
    if score == score:
        word = np.int64(as_word(score + np.float32(0))) & _WORD  # -0 becomes 0
        rank = _WORD - word if word >> 31 else word + 2**31
    return rank


@inline
def _find(bins, sixteens, found, last, wanted):  # type: ignore[no-untyped-def]
    """The bin, from the highest down, in which the wanted-th score lies; how many of that bin's are wanted."""
    group = 15
    while sixteens[group] < wanted:
        wanted -= sixteens[group]
        group -= 1
    digit = 16 * group + 15
    while bins[digit] < wanted:
        wanted -= bins[digit]
        digit -= 1
    found[0], found[1] = (last << 8) | digit, wanted


@inline
def _warp_count(value):  # type: ignore[no-untyped-def]
    """The sum over a warp of small counts."""
    value += shuffle_xor(value, 16)
    value += shuffle_xor(value, 8)
    value += shuffle_xor(value, 4)
    value += shuffle_xor(value, 2)
    return value + shuffle_xor(value, 1)
