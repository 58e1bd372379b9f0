"""A start-up check: one known block of each format in use is decoded on this GPU and compared with the numpy truth. Knows no file."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kernels_numba import reference
from kernels_numba.device import SIMULATED, DeviceMismatch, check_device, to_device, to_host
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.dequantize import dequantize
from kernels_numba.repack import repack


def self_test(format_names: Iterable[str]) -> None:
    """DeviceMismatch, with the GPU, driver and toolkit, where a format decodes to other bits than the truth."""
    for name in sorted(set(format_names)):
        data = known_blocks(name)
        expected = reference.dequantize(data, name).view(np.uint32)
        for planar in (False, True):
            out = to_device(np.full(expected.size, np.nan, np.float32))
            dequantize(to_device(repack(data, name) if planar else data), name, out, planar=planar)
            wrong = int((to_host(out).view(np.uint32) != expected).sum())
            if wrong:
                where = "the simulator" if SIMULATED else check_device()
                raise DeviceMismatch(f"{wrong} of {expected.size} {name} values decode wrongly on {where}")


def known_blocks(format_name: str, count: int = 8) -> NDArray[np.uint8]:
    """Blocks in which every code and every scale level occurs, with finite scales of both signs."""
    form = FORMATS[format_name]
    steps = np.arange(count * form.block_bytes, dtype=np.uint32)
    blocks = (steps * np.uint32(2654435761) >> np.uint32(24)).astype(np.uint8).reshape(count, form.block_bytes)
    at = 0
    for field, size in form.fields:
        if field in ("d", "dmin"):
            blocks[:, at : at + 2] = np.linspace(-1.5, 2.0, count).astype(np.float16).reshape(-1, 1).view(np.uint8)
        at += size
    if format_name in ("F32", "F16", "BF16"):
        wide = {"F32": np.float32, "F16": np.float16, "BF16": np.float32}[format_name]
        values = np.linspace(-3, 5, count).astype(wide)
        blocks = values.view(np.uint8).reshape(count, -1)[:, -form.block_bytes :].copy()
    return blocks.reshape(-1)
