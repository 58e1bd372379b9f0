"""What all tests share: hypothesis without deadlines and with fixed seeds, and tests for a GPU or Windows left out elsewhere."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch loads, as the entry does: see modes/entry.py

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job: so would all processes that tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("repository", deadline=None, derandomize=True)
settings.load_profile("repository")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for_gpu = [item for item in items if item.get_closest_marker("gpu")]
    for item in items:
        if item.get_closest_marker("windows") and sys.platform != "win32":
            item.add_marker(pytest.mark.skip(reason="needs Windows"))
    if for_gpu and not _has_gpu():
        for item in for_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))


def _has_gpu() -> bool:
    from kernels_numba.device import SIMULATED

    if SIMULATED:  # where what is marked runs neither, and torch, which nothing else needs there, takes seconds to import
        return False
    import torch

    return torch.cuda.is_available()
