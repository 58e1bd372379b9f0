"""What each instruction of ptx.py does, in Python, for the simulator: a word is an int from 0 to 2**32 - 1. Runs on no GPU.

Addresses are of host memory. Instructions that a warp runs together pass their values through a table, between barriers of the block.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

_MASK = 2**32 - 1
_board: dict[tuple[int, ...], Any] = {}  # what each simulated thread has put up for the others of its block

_adding = threading.Lock()


def load8(at: int) -> int:
    return ctypes.c_uint8.from_address(int(at)).value


def load16(at: int) -> int:
    return ctypes.c_uint16.from_address(_aligned(at, 2)).value


def load32(at: int) -> int:
    return ctypes.c_uint32.from_address(_aligned(at, 4)).value


def load_int(at: int) -> int:
    return ctypes.c_int32.from_address(_aligned(at, 4)).value


def load64(at: int) -> tuple[int, ...]:
    return tuple(load32(_aligned(at, 8) + 4 * i) for i in range(2))


def load128(at: int) -> tuple[int, ...]:
    return tuple(load32(_aligned(at, 16) + 4 * i) for i in range(4))


def load_long(at: int) -> int:
    return ctypes.c_int64.from_address(_aligned(at, 8)).value


def load_float(at: int) -> np.float32:
    return as_float(load32(at))


def load_float4(at: int) -> tuple[np.float32, ...]:
    return tuple(as_float(word) for word in load128(at))


def store8(at: int, word: int) -> None:
    ctypes.c_uint8.from_address(int(at)).value = int(word) & 0xFF


def store16(at: int, word: int) -> None:
    ctypes.c_uint16.from_address(_aligned(at, 2)).value = int(word) & 0xFFFF


def store32(at: int, word: int) -> None:
    ctypes.c_uint32.from_address(_aligned(at, 4)).value = int(word) & _MASK


def store64(at: int, value: int) -> None:
    ctypes.c_int64.from_address(_aligned(at, 8)).value = int(value)


def store128(at: int, *words: int) -> None:
    for i, word in enumerate(words):
        store32(_aligned(at, 16) + 4 * i, word)


def store_float(at: int, value: np.float32) -> None:
    store32(at, as_word(value))


def store_float2(at: int, *values: np.float32) -> None:
    for i, value in enumerate(values):
        store_float(_aligned(at, 8) + 4 * i, value)


def store_float4(at: int, *values: np.float32) -> None:
    for i, value in enumerate(values):
        store_float(_aligned(at, 16) + 4 * i, value)


def _aligned(at: int, size: int) -> int:
    if int(at) % size:
        raise ValueError(f"address {int(at):#x} is not a multiple of {size}")
    return int(at)


def bits(word: int, shift: int, mask: int) -> int:
    return (int(word) & _MASK) >> int(shift) & int(mask)


def byte(word: int, index: int) -> int:
    value = bits(word, 8 * index, 0xFF)
    return value - 256 if value > 127 else value


def shift_or(word: int, value: int, shift: int) -> int:
    return (int(word) | int(value) << int(shift)) & _MASK


def xor(word: int, other: int) -> int:
    return (int(word) ^ int(other)) & _MASK


def add_words(word: int, other: int) -> int:
    return (int(word) + int(other)) & _MASK


def multiply_words(word: int, other: int) -> int:
    return int(word) * int(other) & _MASK


def as_float(word: int) -> np.float32:
    return np.uint32(int(word) & _MASK).view(np.float32)


def as_word(value: np.float32) -> int:
    return int(np.float32(value).view(np.uint32))


def to_float(value: int) -> np.float32:
    return np.float32(int(value))


def count_bits(word: int) -> int:
    return (int(word) & _MASK).bit_count()


def larger(word: int, other: int) -> int:
    return max(int(word) & _MASK, int(other) & _MASK)


def pick_bytes(low: int, high: int, selector: int) -> int:
    pool = (int(low) & _MASK) | (int(high) & _MASK) << 32
    return sum((pool >> 8 * (int(selector) >> 4 * i & 7) & 0xFF) << 8 * i for i in range(4))


def dp4a(left: int, right: int, start: int) -> int:
    return int(start) + sum(byte(left, i) * byte(right, i) for i in range(4))


def half_to_float(half: int) -> np.float32:
    return np.float32(np.uint16(int(half) & 0xFFFF).view(np.float16))


def halves(word: int) -> tuple[np.float32, np.float32]:
    return half_to_float(word), half_to_float((int(word) & _MASK) >> 16)


def pack_bf16(low: np.float32, high: np.float32) -> int:
    return _bf16(low) | _bf16(high) << 16


def _bf16(value: np.float32) -> int:
    word = as_word(value)
    if np.isnan(value):
        return 0x7FFF
    return (word + 0x7FFF + (word >> 16 & 1)) >> 16


def pack_f16(low: np.float32, high: np.float32) -> int:
    with np.errstate(over="ignore"):
        return int(np.float16(low).view(np.uint16)) | int(np.float16(high).view(np.uint16)) << 16


def multiply(left: np.float32, right: np.float32) -> np.float32:
    return np.float32(left) * np.float32(right)


def add(left: np.float32, right: np.float32) -> np.float32:
    return np.float32(left) + np.float32(right)


def fused(left: np.float32, right: np.float32, start: np.float32) -> np.float32:
    return np.float32(np.float64(left) * np.float64(right) + np.float64(start))  # rounds twice: within one ulp of the instruction


def divide(left: np.float32, right: np.float32) -> np.float32:
    return np.float32(left) / np.float32(right)


def nearest(value: np.float32) -> int:
    return 0 if np.isnan(value) else int(np.clip(np.rint(np.float64(value)), -(2**31), 2**31 - 1))


def shared_address(array: Any) -> np.int64:
    return np.int64(array.ctypes.data)


def nothing() -> None:
    """For instructions that only order memory: the twins of copies are done when they return."""


def shuffle_xor(word: int, mask: int) -> int:
    warp = _exchange(int(word) & _MASK)
    return int(warp[_lane() ^ int(mask)])


def ballot(chosen: int) -> int:
    return sum(1 << lane for lane, other in enumerate(_exchange(int(chosen))) if other)


def warp_most(word: int) -> int:
    return int(max(_exchange(int(word) & _MASK)))


def warp_least(word: int) -> int:
    return int(min(_exchange(int(word) & _MASK)))


def warp_total(value: int) -> int:
    return int(sum(_exchange(int(value))))


def add_int(at: int, value: int) -> None:
    with _adding:
        ctypes.c_int32.from_address(_aligned(at, 4)).value += int(value)


def load_matrix4(at: int) -> tuple[int, ...]:
    rows = _exchange(load128(at))
    lane = _lane()
    return tuple(int(rows[8 * tile + lane // 4][lane % 4]) for tile in range(4))


def load_shared128(array: Any, index: int) -> tuple[int, ...]:
    return tuple(int(array[_aligned(index, 4) + i]) & _MASK for i in range(4))


def load_shared_float4(array: Any, index: int) -> tuple[np.float32, ...]:
    return tuple(array[_aligned(index, 4) + i] for i in range(4))


def store_shared128(array: Any, index: int, *words: int) -> None:
    for i, word in enumerate(words):
        array[_aligned(index, 4) + i] = np.uint32(int(word) & _MASK).view(np.int32)


def copy_async(place: int, at: int, size: int) -> None:
    store128(place, *(load128(at) if size else (0, 0, 0, 0)))


def mma_bf16(*operands: Any) -> tuple[np.float32, ...]:
    return _mma(operands, lambda half: as_float(half << 16))


def mma_f16(*operands: Any) -> tuple[np.float32, ...]:
    return _mma(operands, half_to_float)


def _mma(operands: Any, widen: Any) -> tuple[np.float32, ...]:
    """This lane's four sums of D[16, 8] = A[16, 16] B[16, 8] + C; the PTX manual has the lanes' places."""
    warp = _exchange([int(word) & _MASK for word in operands[:6]])
    row, column = _lane() // 4, _lane() % 4 * 2
    sums = []
    for i, start in enumerate(operands[6:]):
        total = np.float64(start)
        for k in range(16):
            register = (row + 8 * (i // 2)) // 8 + 2 * (k // 8)
            a = warp[row * 4 + k % 8 // 2][register]
            b = warp[(column + i % 2) * 4 + k % 8 // 2][4 + k // 8]
            total += np.float64(widen(bits(a, 16 * (k % 2), 0xFFFF))) * np.float64(widen(bits(b, 16 * (k % 2), 0xFFFF)))
        sums.append(np.float32(total))
    return tuple(sums)


def _lane() -> int:
    return int(threading.current_thread().thread_id) % 32  # type: ignore[attr-defined]


def _exchange(value: Any) -> list[Any]:
    """Every lane's value, in lane order; all threads of the block must come here."""
    thread: Any = threading.current_thread()
    warp = thread.thread_id // 32
    _board[warp, _lane()] = value
    thread.syncthreads()
    got = [_board.get((warp, lane)) for lane in range(32)]
    thread.syncthreads()
    return got
