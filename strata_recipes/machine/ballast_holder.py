"""The process that holds a ballast: locks as many bytes of its own memory as it is told, until its input ends. Needs no package.

Each input line is the number of bytes to hold from now on; each answer `held N`, or `refused N reason` with what it holds.
Its input ends when the starter closes it or dies, and then it ends at once, also in the midst of locking. (Linux' death
signal is no help: it comes when the starting thread ends.)
"""

from __future__ import annotations

import ctypes
import mmap
import os
import queue
import signal
import sys
import threading
from pathlib import Path

from strata_recipes.machine import windows_memory

SLICE_BYTES = 64 << 20
WINDOWS = os.name == "nt"


class Slice:
    """Locked memory of this process; OSError if the system does not lock it."""

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        if WINDOWS:
            self._address = windows_memory.allocate(num_bytes)
            windows_memory.allow_locked(num_bytes)
            windows_memory.lock(self._address, num_bytes)
            return
        self._map = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self._map)))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mlock(address, ctypes.c_size_t(num_bytes)):
            code = ctypes.get_errno()
            self._map.close()
            raise OSError(code, os.strerror(code))

    def close(self) -> None:
        if WINDOWS:
            windows_memory.release(self._address)
        else:
            self._map.close()


class Holder:
    """The slices, brought to a stated sum."""

    def __init__(self) -> None:
        self._slices: list[Slice] = []

    @property
    def num_bytes(self) -> int:
        return sum(part.num_bytes for part in self._slices)

    def hold(self, num_bytes: int) -> None:
        while self._slices and self.num_bytes > num_bytes:
            self._slices.pop().close()
        while (missing := num_bytes - self.num_bytes) > 0:
            self._slices.append(Slice(min(missing, SLICE_BYTES)))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the starter's: it closes our input
    if not WINDOWS:
        Path("/proc/self/oom_score_adj").write_text("1000")  # if RAM runs out after all, this process goes first
    orders: queue.Queue[int] = queue.Queue()
    threading.Thread(target=_obey, args=(orders,), daemon=True).start()
    for line in sys.stdin:
        orders.put(int(line))
    os._exit(0)


def _obey(orders: queue.Queue[int]) -> None:
    holder = Holder()
    while True:
        try:
            holder.hold(orders.get())
            print("held", holder.num_bytes, flush=True)
        except OSError as error:
            print("refused", holder.num_bytes, error, flush=True)
