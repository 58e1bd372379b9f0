"""The k best experts of each token on the GPU: any number of experts, ties to the lower id, NaN never chosen before a number.

Knows no softmax: the order of the scores is the order of their shares. Scores are compared as integers that sort as they do.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import int64

from kernels_numba.device import Kernel, address, cuda, inline
from kernels_numba.ptx import as_word, load_float, store32, store_float

_THREADS = 128
_WORD = 2**32 - 1
_ID_BITS = 24
IDS = 2**_ID_BITS - 1


def route_topk(scores: Any, ids: Any, values: Any, nans: Any, stream: int = 0) -> None:
    """scores float32 [T, E] -> ids int32 [T, k], best first, values float32 [T, k] (the scores chosen), nans int32 [T] (NaNs a row).

    Ids are distinct and in range whatever the scores are; a NaN ranks below -inf. Refused: k of 0, k above E. The caller
    refuses a row whose count of NaN is not 0: it knows the layer and the token.
    """
    (tokens, experts), count = (int(size) for size in scores.shape), int(ids.shape[1])
    if not 1 <= count <= experts <= IDS:
        raise ValueError(f"{count} of {experts} experts: wanted 1 to {experts} of at most {IDS}")
    pointers = (address("scores", scores, "float32", (tokens, experts)), address("ids", ids, "int32", (tokens, count)),
                address("values", values, "float32", (tokens, count)), address("nans", nans, "int32", (tokens,)))  # fmt: skip
    topk_kernel().launch(tokens, stream, *pointers, experts, count)


@functools.cache
def topk_kernel() -> Kernel:
    """A block a token: each turn finds the largest key below the last one found."""

    def route_token(scores, ids, values, nans, experts, count):  # type: ignore[no-untyped-def]
        best = cuda.shared.array(_THREADS, int64)  # one declaration a line: the simulator names arrays by line
        found_nans = cuda.shared.array(_THREADS, int64)
        thread, token = cuda.threadIdx.x, np.int64(cuda.blockIdx.x)
        row = scores + token * experts * 4
        last = np.int64(2**63 - 1)
        for turn in range(count):
            mine, bad = np.int64(-1), np.int64(0)
            for expert in range(thread, experts, _THREADS):
                score = load_float(row + expert * 4)
                key = order_key(score, expert)
                if score != score:
                    bad += 1
                if mine < key and key < last:
                    mine = key
            best[thread], found_nans[thread] = mine, bad
            cuda.syncthreads()
            half = _THREADS // 2
            while half > 0:
                if thread < half:
                    best[thread] = max(best[thread], best[thread + half])
                    found_nans[thread] += found_nans[thread + half]
                cuda.syncthreads()
                half //= 2
            last = best[0]
            if thread == 0:
                expert = IDS - (last & IDS)
                store32(ids + (token * count + turn) * 4, expert)
                store_float(values + (token * count + turn) * 4, load_float(row + expert * 4))
                if turn == 0:
                    store32(nans + token * 4, found_nans[0])
            cuda.syncthreads()

    return Kernel(route_token, "i64 i64 i64 i64 i64 i64", _THREADS)


@inline
def order_key(score, expert):  # type: ignore[no-untyped-def]
    """A number from 0 that sorts by score (NaN lowest), then by the lower id: 33 bits of rank, 24 of IDS less the id."""
    rank = np.int64(0)
    if score == score:
        word = np.int64(as_word(score + np.float32(0))) & _WORD  # -0 becomes 0
        rank = 1 + (_WORD - word if word >> 31 else word + 2**31)
    return (rank << _ID_BITS) | (IDS - expert)
