"""These tests run on a GPU, or in numba's CUDA simulator (tests/kernels/test_cuda_simulated.py starts them there), or not at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kernels_numba.device import SIMULATED, DeviceMismatch, check_device


def why_not() -> str:
    """Why no kernel can run here, or nothing."""
    if SIMULATED:
        return ""
    try:
        check_device()
    except DeviceMismatch as failure:
        return str(failure)
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not()
    for item in items:
        if "tests/gpu" in item.path.as_posix():
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))
            elif SIMULATED and item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="too big for the simulator, or not in it"))


class OneMaker(dict[Any, Any]):
    """A dict in which the thread that finds a key missing has the lock until it has set it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def get(self, key: Any, default: Any = None) -> Any:
        self._lock.acquire()
        if key in self:
            self._lock.release()
            return self[key]
        return default

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self._lock.release()


@pytest.fixture(autouse=True)
def one_shared_array_a_block(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The simulator's threads race to make a block's shared array, and some then keep another one than the rest."""
    if SIMULATED:
        from numba.cuda.simulator.kernelapi import FakeCUDAShared

        made: Any = FakeCUDAShared.__init__

        def with_lock(self: Any, *args: Any, **kwargs: Any) -> None:
            made(self, *args, **kwargs)
            self._allocations = OneMaker()

        monkeypatch.setattr(FakeCUDAShared, "__init__", with_lock)
    yield
