"""The best blocks of each token on the GPU, ascending: any number of blocks, ties to the lower id. Knows no queries and no keys.

The score that the last block chosen has is found eight bits at a time by counting, so a row is read six times and never sorted;
the ids come out in order because each warp takes one stretch of the row. Scores are compared as integers that sort as they do. Four
are loaded at a time, since a single token's row waits for nothing but its loads.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import int32, int64

from kernels_numba.device import Kernel, address, cuda, inline
from kernels_numba.ptx import as_word, ballot, bits, count_bits, load_float, load_long, shuffle_xor, store32

_THREADS = 128
_MOST_THREADS = 1024
_NOTHING = np.int64(-1)  # the rank of no score
_ZERO_RANK = 2**31  # an index that likes no block gives it 0, and most are not liked: these are counted apart
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


def select_threads(width: int) -> int:
    """Threads a row where rows are few: eight scores a thread, from 128 to 1,024 of them. A row's ids do not depend on it."""
    return min(_MOST_THREADS, max(_THREADS, 1 << (-(-width // 8) - 1).bit_length()))


@functools.cache
def select_kernel(block: int, threads: int = _THREADS, placed: bool = False) -> Kernel:
    """A block of threads a token. `placed`: `start` is the address of the first token's position rather than the position."""
    start_of, warps, stride = load_long if placed else _same, threads // 32, 4 * threads
    per_warp = 2 * warps

    def select_row(scores, chosen, width, count, start):  # type: ignore[no-untyped-def]
        bins = cuda.shared.array(_BINS, int32)  # one declaration a line: the simulator names arrays by line
        found = cuda.shared.array(2, int64)  # the bits of the last score so far, and how many of the scores with these bits are chosen
        before = cuda.shared.array(per_warp, int32)  # scores above the last one, and scores equal to it, in each warp's stretch
        thread, token = np.int32(cuda.threadIdx.x), np.int64(cuda.blockIdx.x)
        lane, warp = thread & 31, thread >> 5
        row, out = scores + token * width * 4, chosen + token * count * 4
        num_blocks = np.int32((start_of(start) + token + 1) // block)
        if num_blocks <= count:
            for i in range(thread, count, threads):
                store32(out + np.int64(i) * 4, i)
            return
        turns = (num_blocks + stride - 1) // stride
        last, ties = np.int64(0), np.int32(count)
        for turn in range(4):
            shift = 24 - 8 * turn
            for i in range(thread, _BINS, threads):
                bins[i] = 0
            cuda.syncthreads()
            zeros = np.int32(0)
            for step in range(turns):
                i = step * stride + thread
                a, b = _rank_at(row, i, num_blocks), _rank_at(row, i + threads, num_blocks)
                c, d = _rank_at(row, i + 2 * threads, num_blocks), _rank_at(row, i + 3 * threads, num_blocks)
                zeros += _count(bins, a, last, shift) + _count(bins, b, last, shift)
                zeros += _count(bins, c, last, shift) + _count(bins, d, last, shift)
            zeros = _warp_count(zeros)
            if lane == 0 and zeros > 0:
                cuda.atomic.add(bins, np.int32((_ZERO_RANK >> shift) & 255), zeros)
            cuda.syncthreads()
            _find(bins, found, last, ties, lane, warp)
            cuda.syncthreads()
            last, ties = found[0], np.int32(found[1])
        # each warp takes one stretch of the row, 32 blocks a step, four steps a turn; all warps take as many turns
        first = warp * turns * 128 + lane
        above, equal = np.int32(0), np.int32(0)
        for step in range(turns):
            i = first + step * 128
            a, b = _rank_at(row, i, num_blocks), _rank_at(row, i + 32, num_blocks)
            c, d = _rank_at(row, i + 64, num_blocks), _rank_at(row, i + 96, num_blocks)
            above += np.int32(a > last) + np.int32(b > last) + np.int32(c > last) + np.int32(d > last)
            equal += np.int32(a == last) + np.int32(b == last) + np.int32(c == last) + np.int32(d == last)
        above, equal = _warp_count(above), _warp_count(equal)
        if lane == 0:
            before[2 * warp], before[2 * warp + 1] = above, equal
        cuda.syncthreads()
        above, equal = np.int32(0), np.int32(0)
        for other in range(warps):
            if other < warp:
                above += before[2 * other]
                equal += before[2 * other + 1]
        for step in range(turns):
            i = first + step * 128
            a, b = _rank_at(row, i, num_blocks), _rank_at(row, i + 32, num_blocks)
            c, d = _rank_at(row, i + 64, num_blocks), _rank_at(row, i + 96, num_blocks)
            above, equal = _put(out, a, i, last, ties, lane, above, equal)
            above, equal = _put(out, b, i + 32, last, ties, lane, above, equal)
            above, equal = _put(out, c, i + 64, last, ties, lane, above, equal)
            above, equal = _put(out, d, i + 96, last, ties, lane, above, equal)

    return Kernel(select_row, "i64 i64 i64 i64 i64", threads)


@inline
def _same(value):  # type: ignore[no-untyped-def]
    return value


@inline
def _rank_at(row, i, num_blocks):  # type: ignore[no-untyped-def]
    """A number of 32 bits that sorts by score; NaN is 0. Below all of them past the last score."""
    rank = _NOTHING
    if i < num_blocks:
        score = load_float(row + np.int64(i) * 4)
        rank = np.int64(0)
        if score == score:
            word = np.int64(as_word(score + np.float32(0))) & _WORD  # -0 becomes 0
            rank = _WORD - word if word >> 31 else word + 2**31
    return rank


@inline
def _count(bins, rank, last, shift):  # type: ignore[no-untyped-def]
    """Count a score whose leading bits are `last` by its next eight; 1 for a zero, which is left to the caller."""
    zero = np.int32(0)
    if rank >> (shift + 8) == last:
        if rank == _ZERO_RANK:
            zero = np.int32(1)
        else:
            cuda.atomic.add(bins, np.int32((rank >> shift) & 255), 1)
    return zero


@inline
def _find(bins, found, last, wanted, lane, warp):  # type: ignore[no-untyped-def]
    """The bin, from the highest down, in which the wanted-th score lies; how many of that bin's are wanted.

    A lane has eight bins, the first lane the highest ones; every warp comes to the same.
    """
    digit = 255 - 8 * lane
    own = np.int32(0)
    for i in range(8):
        own += bins[digit - i]
    total, ahead = own, np.int32(0)  # of neighbouring lanes, more of them each time; of those before this lane
    for k in range(5):
        other = shuffle_xor(total, 1 << k)
        if lane >> k & 1:
            ahead += other
        total += other
    if warp == 0 and ahead < wanted and wanted <= ahead + own:
        wanted -= ahead
        while bins[digit] < wanted:
            wanted -= bins[digit]
            digit -= 1
        found[0], found[1] = (last << 8) | digit, wanted


@inline
def _put(out, rank, i, last, ties, lane, above, equal):  # type: ignore[no-untyped-def]
    """Write the id i to its place where it is chosen; how many scores above and equal to the last there are up to this warp's 32."""
    lower = (np.int64(1) << lane) - 1  # the lanes before this one
    higher, same = ballot(np.int32(rank > last)), ballot(np.int32(rank == last))
    tie = equal + count_bits(bits(same, 0, lower))
    place = above + count_bits(bits(higher, 0, lower)) + min(tie, ties)
    if rank > last or (rank == last and tie < ties):
        store32(out + np.int64(place) * 4, i)
    return above + count_bits(higher), equal + count_bits(same)


@inline
def _warp_count(value):  # type: ignore[no-untyped-def]
    """The sum over a warp of small counts."""
    value += shuffle_xor(value, 16)
    value += shuffle_xor(value, 8)
    value += shuffle_xor(value, 4)
    value += shuffle_xor(value, 2)
    return value + shuffle_xor(value, 1)
