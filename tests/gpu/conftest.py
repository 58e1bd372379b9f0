"""These tests run on a GPU, or in numba's CUDA simulator (tests/kernels/test_cuda_simulated.py starts them there), or not at all."""

from __future__ import annotations

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


@pytest.fixture(autouse=True)
def threads_that_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    if SIMULATED:
        from tests.gpu.simulated_blocks import take_turns

        take_turns(monkeypatch)
