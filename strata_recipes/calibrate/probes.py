"""What can be measured of this PC, each a function that takes a fraction of a second. Knows no config file.

Keys are hardware facts; those of direct reads carry the size of a read and how many are under way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from kernels_numba.cpu.dequantize import dequantize
from kernels_numba.cpu.expert_mlp import expert_hidden, project
from kernels_numba.formats import FORMATS
from strata_recipes.machine.drive import direct_rate, mapped_rates
from strata_recipes.machine.probe import copy_bandwidth
from strata_recipes.units import MiB

Probe = Callable[[], float]
SIZES, DEPTHS = (1 * MiB, 4 * MiB, 32 * MiB), (1, 2, 6)
_HIDDEN, _WIDTH, _ROWS = 2560, 640, 8  # an expert of the 125 B model; from 8 rows on its kernel reaches its rate
_COPY_BYTES = 64 * MiB
_SIDE = 4096  # of the matrices whose product tells a card's rate


def direct_key(size: int, depth: int) -> str:
    return f"drive.direct {size // MiB or size} MiB x {depth}"


def drive_probes(path: Path, own: tuple[int, int]) -> dict[str, Probe]:
    """Of the drive that holds `path`, a file that is big and not in use. `own`: size and depth of the program's reads.

    None on Windows: reads past its cache are not built here, and it does not tell what the cache holds.
    """
    if not hasattr(os, "O_DIRECT"):
        return {}
    settings = dict.fromkeys([own, *((size, depth) for size in SIZES for depth in DEPTHS)])
    probes: dict[str, Probe] = {direct_key(*each): partial(direct_rate, path, *each) for each in settings}
    return probes | {"drive.faults": lambda: mapped_rates(path)[0], "drive.cached": lambda: mapped_rates(path)[1]}


def cpu_probes() -> dict[str, Probe]:
    """RAM by one thread's copy; arithmetic by a 2-bit expert on all cores, dequantizing included."""
    values = 3 * _HIDDEN * _WIDTH
    form = FORMATS["Q2_0"]
    blob = np.full(values // form.block_values * form.block_bytes, 0x3C, np.uint8)  # a scale of about 1 in every block
    wide = np.empty(values, np.float32)
    x = np.ones((_ROWS, _HIDDEN), np.float32)

    def expert() -> float:
        begin = time.perf_counter()
        dequantize(blob, "Q2_0", wide)
        gate, up, down = wide.reshape(3, -1)
        hidden = expert_hidden(x, gate.reshape(_WIDTH, _HIDDEN), up.reshape(_WIDTH, _HIDDEN))
        project(hidden, down.reshape(_HIDDEN, _WIDTH))
        return 2.0 * values * _ROWS / (time.perf_counter() - begin)

    expert()  # compiles, or loads what was compiled
    return {"cpu.bandwidth": copy_bandwidth, "cpu.flops": expert}


def gpu_probes() -> dict[str, Probe]:
    """Of the first card; none where there is none."""
    if not torch.cuda.is_available():
        return {}
    pinned, plain = (torch.ones(_COPY_BYTES, dtype=torch.uint8, pin_memory=pin) for pin in (True, False))
    there = torch.empty_like(plain, device="cuda")
    other = torch.empty_like(there)
    square = torch.ones((_SIDE, _SIDE), dtype=torch.float16, device="cuda")
    return {
        "gpu.pcie": lambda: _COPY_BYTES / _cuda_s(lambda: there.copy_(pinned, non_blocking=True)),
        "gpu.pcie pageable": lambda: _COPY_BYTES / _cuda_s(lambda: there.copy_(plain)),
        "gpu.bandwidth": lambda: 2 * _COPY_BYTES / _cuda_s(lambda: other.copy_(there)),
        "gpu.flops": lambda: 2.0 * _SIDE**3 / _cuda_s(lambda: torch.mm(square, square)),
    }


def _cuda_s(work: Callable[[], object]) -> float:
    """Seconds of one call on the card, after one that warms up."""
    work()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3
