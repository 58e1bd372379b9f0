"""PTX of our kernels for any compute capability, without a GPU or a driver; needs the toolkit's libraries (libnvrtc, libnvvm)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from kernels_numba.device import Kernel, cuda
from kernels_numba.fingerprint import fingerprint

CAPABILITIES = ((8, 6), (8, 9), (9, 0), (12, 0))


def ptx(kernel: Kernel, capability: tuple[int, int]) -> str:
    """The text. numba compiles device functions for the current device only, so one is named for it."""
    from numba.cuda import dispatcher

    compile_ptx: Any = cuda.compile_ptx
    assert fingerprint(kernel)  # of any kernel one can be made, so that its machine code is kept on disk

    with mock.patch.object(dispatcher, "get_current_device", lambda: SimpleNamespace(compute_capability=capability)):
        text, _ = compile_ptx(kernel.body, kernel.signature, cc=capability, launch_bounds=kernel.bounds)
    return str(text)


def toolkit_missing() -> str:
    """Why PTX cannot be made here, or nothing."""
    from cuda.bindings import nvrtc

    try:
        nvrtc.nvrtcVersion()
    except Exception as failure:  # cuda.pathfinder's own class, which it does not export
        if type(failure).__name__ != "DynamicLibNotFoundError":
            raise
        return "no CUDA toolkit libraries: pip install numba-cuda[cu13]"
    return ""


needs_toolkit = pytest.mark.skipif(bool(toolkit_missing()), reason=toolkit_missing() or "the toolkit is here")
