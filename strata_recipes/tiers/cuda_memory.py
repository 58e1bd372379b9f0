"""Memory that a card can reach: blobs copied up and down, and host memory locked in place. Knows no expert.

torch's own pinned allocator rounds up to powers of two, and takes its memory whole; ours is locked where it already lies.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Sequence

import torch

from strata_recipes.files.aligned import AlignedBuffer
from strata_recipes.files.source import Bytes

Note = Callable[[str], None]


def tensor_of(view: Bytes) -> torch.Tensor:
    """The same bytes as a tensor; the caller keeps the view alive. torch wants a writable buffer, and copies up only read."""
    return torch.frombuffer((ctypes.c_ubyte * view.size).from_address(view.ctypes.data), dtype=torch.uint8)


class Locks:
    """Host memory that is page-locked, and the one warning where the system refuses: copies are then pageable, and slower."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._said = threading.Lock()
        self._refused = False
        self.locked_bytes = 0

    def lock(self, view: Bytes) -> bool:
        """Whether the view is locked now."""
        if not view.size:
            return False
        code = int(torch.cuda.cudart().cudaHostRegister(view.ctypes.data, view.size, 0))
        if code:
            _forget_error()
            self._refuse(view.size, code)
            return False
        self.locked_bytes += view.size
        return True

    def card_address(self, view: Bytes) -> int:
        """Where kernels find a locked view, to read it in place over the bus; 0 where the card does not reach it."""
        found = ctypes.c_void_p()
        code = _runtime().cudaHostGetDevicePointer(ctypes.byref(found), ctypes.c_void_p(view.ctypes.data), 0)
        if code:
            _forget_error()
        return 0 if code else int(found.value or 0)

    def unlock(self, view: Bytes) -> None:
        """Ends a lock, once no copy is under way from the view."""
        torch.cuda.cudart().cudaHostUnregister(view.ctypes.data)
        self.locked_bytes -= view.size

    def _refuse(self, num_bytes: int, code: int) -> None:
        with self._said:
            if not self._refused:
                self._refused = True
                self._note(
                    f"the driver refuses to page-lock {num_bytes} bytes beside {self.locked_bytes} that are locked (CUDA error {code}): "
                    "copies from there are pageable, slower and of the same bits; raise the limit of locked memory (ulimit -l)"
                )


def _forget_error() -> None:
    """The runtime keeps a refusal as this thread's last error, and the next launch, which is innocent, would report it."""
    _runtime().cudaGetLastError()


def _runtime() -> ctypes.CDLL:
    """The runtime library that torch has loaded."""
    assert torch.version.cuda is not None, "without CUDA nothing is locked"
    major = torch.version.cuda.split(".")[0]
    return ctypes.CDLL(f"cudart64_{major}.dll" if sys.platform == "win32" else f"libcudart.so.{major}")


class LockedBuffer(AlignedBuffer):
    """An aligned buffer that copies to the card leave without waiting, where the system locks it."""

    def __init__(self, num_bytes: int, alignment: int, locks: Locks) -> None:
        super().__init__(num_bytes, alignment)
        self._locks = locks
        self._whole = self.bytes
        self._locked = locks.lock(self.bytes)
        self.card_address = locks.card_address(self.bytes) if self._locked else 0

    def close(self) -> None:
        if self._locked:
            self._locked = False
            self._locks.unlock(self._whole)
        self._whole = self.bytes[:0].copy()
        super().close()


class LockedSlices:
    """Locks slices of memory one after the other in a thread of its own, while they are read into."""

    def __init__(self, slices: Sequence[Bytes], locks: Locks) -> None:
        self._slices = slices
        self._locks = locks
        self._locked: list[Bytes] = []
        self.seconds = 0.0
        self._stopping = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._lock_all, name="page-lock", daemon=True)
        self._thread.start()

    @property
    def num_bytes(self) -> int:
        """Locked so far."""
        return sum(part.size for part in self._locked)

    def wait(self) -> None:
        """Returns when all is locked or refused."""
        self._thread.join()
        if self._error:
            raise self._error

    def card_address(self, view: Bytes) -> int:
        """Of a view inside a slice that is locked; else 0."""
        at = view.ctypes.data
        for part in self._locked:
            first = part.ctypes.data
            if first <= at and at + view.size <= first + part.size:
                return self._locks.card_address(part) + at - first
        return 0

    def close(self) -> None:
        """Ends the locking after the slice at work, and the locks."""
        self._stopping = True
        self._thread.join()
        for part in self._locked:
            self._locks.unlock(part)
        self._locked, self._slices = [], []

    def _lock_all(self) -> None:
        began = time.perf_counter()
        try:
            for part in self._slices:
                if self._stopping or not self._locks.lock(part):
                    return
                self._locked.append(part)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits for it
            self._error = error
        self.seconds = time.perf_counter() - began
