"""Blocks of numba's CUDA simulator whose threads take turns: each runs to the next barrier, or to its end. Knows no kernel.

The simulator's own blocks run all threads at once and poll them until all wait, which takes far longer than the threads' work.
"""

from __future__ import annotations

import threading
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numba.cuda.simulator import kernel, kernelapi

from kernels_numba import ptx_twins


def take_turns(patch: pytest.MonkeyPatch) -> None:
    """Until the patch is undone: no two threads at once, so that none race to make a block's shared array."""
    patch.setattr(kernel, "BlockManager", Block)
    patch.setattr(kernelapi, "traceback", SimpleNamespace(extract_stack=callers))
    patch.setattr(ptx_twins, "_exchange", exchange)


class Turn(kernel.BlockThread):  # type: ignore[misc]
    """A thread of a block, waiting for its lock while it is not its turn."""

    def __init__(self, target: Any, block: Block, at: tuple[int, ...], place: tuple[int, ...]) -> None:
        super().__init__(target, block, at, place, False)
        self.turn = threading.Lock()
        self.turn.acquire()
        self.exchanges = 0

    def run(self) -> None:
        self.turn.acquire()
        if not self.abort:
            super().run()
        self._manager.ended(self)

    def syncthreads(self) -> None:
        self._manager.arrived(self)
        self.turn.acquire()
        if self.abort:
            raise RuntimeError("another thread of the block failed")

    def exchange(self, value: Any) -> list[Any]:
        """The warp's values. One barrier is enough: this board is written again only after the other's barrier."""
        self.exchanges += 1
        board, first = self._manager.boards[self.exchanges % 2], self.thread_id // 32 * 32
        board[self.thread_id] = value
        self.syncthreads()
        return list(board[first : first + 32])


class Block:
    """In BlockManager's place."""

    def __init__(self, f: Any, grid_dim: Any, block_dim: tuple[int, ...], debug: bool) -> None:
        self._f, self._block_dim = f, block_dim
        self.block_state = np.zeros(block_dim, np.bool_)
        threads = int(np.prod(block_dim))
        self.boards: list[list[Any]] = [[None] * threads, [None] * threads]
        self._threads: list[Turn] = []
        self._coming: list[Turn] = []
        self._at_barrier: list[Turn] = []
        self._over = threading.Lock()

    def run(self, grid_point: tuple[int, ...], *args: Any) -> None:
        self._threads = [Turn(lambda: self._f(*args), self, grid_point, place) for place in np.ndindex(*self._block_dim)]
        self._coming = self._threads[:: 1 if sum(grid_point) % 2 else -1]  # the last in it goes first: each order in every other block
        for thread in self._threads:
            thread.start()
        self._over.acquire()
        self._next()
        self._over.acquire()
        for thread in self._threads:
            if thread.exception and not thread.abort:
                raise thread.exception[0].with_traceback(thread.exception[1])

    def arrived(self, thread: Turn) -> None:
        self._at_barrier.append(thread)
        self._next()

    def ended(self, thread: Turn) -> None:
        if thread.exception and not thread.abort:
            for other in self._threads:
                other.abort = other is not thread
        self._next()

    def _next(self) -> None:
        if not self._coming:  # the last at the barrier goes on first, so the order of the threads turns at each
            self._coming, self._at_barrier = self._at_barrier, []
        (self._coming.pop().turn if self._coming else self._over).release()


def exchange(value: Any) -> list[Any]:
    """In place of the twins' own, which waits twice."""
    thread: Any = threading.current_thread()
    return list(thread.exchange(value))


def callers(frame: FrameType) -> list[tuple[str, int]]:
    """What the simulator tells shared arrays apart by, of the frame that asks: the line that called it. Reads no source file."""
    caller = frame.f_back
    assert caller is not None
    return [(caller.f_code.co_filename, caller.f_lineno), ("", 0)]
