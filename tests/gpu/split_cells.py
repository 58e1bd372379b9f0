"""Cells in two places: the first on the device, the others in page-locked memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels_numba.device import SIMULATED, cuda, to_device, to_host


@dataclass(frozen=True)
class Split:
    near: Any
    far: np.ndarray

    def joined(self) -> np.ndarray:
        near = to_host(self.near)  # waits for what was launched before
        return np.concatenate([near, self.far], axis=1)


def split(cells: np.ndarray, resident: int) -> Split:
    """[K, context, ..] cut after `resident` tokens."""
    others = cells[:, resident:]
    far = np.empty(others.shape, others.dtype) if SIMULATED else cuda.pinned_array(others.shape, others.dtype)
    far[:] = others
    return Split(to_device(cells[:, :resident]), far)
