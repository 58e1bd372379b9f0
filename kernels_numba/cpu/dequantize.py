"""Storage formats to float32 on the CPU, bit-equal to kernels_numba/reference.py. Knows no file and no tensor shape.

One kernel a quantized format, compiled at its first use and kept on disk where a folder for that can be written. A kernel
(block_loops.py) shares the blocks out among threads; what it does to one block depends on that block alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from kernels_numba.cpu import block_loops
from kernels_numba.formats import FORMATS, Format
from kernels_numba.grids import IQ4_VALUES, grid, sign_bytes


def dequantize(data: NDArray[np.uint8], format_name: str, out: NDArray[np.float32]) -> None:
    """`data`: uint8, one contiguous axis of whole blocks; `out`: float32, one contiguous axis of that many values. Exact."""
    form = FORMATS[format_name]
    num_blocks = data.size // form.block_bytes
    if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous or num_blocks * form.block_bytes != data.size:
        raise ValueError(f"{data.dtype} of shape {data.shape} is not whole {format_name} blocks of {form.block_bytes} bytes")
    if out.dtype != np.float32 or out.shape != (num_blocks * form.block_values,) or not out.flags.c_contiguous:
        raise ValueError(f"{out.dtype} of shape {out.shape} does not hold {num_blocks * form.block_values} float32 values")
    if not num_blocks:
        return
    if format_name in _PLAIN:
        _PLAIN[format_name](data, out)
        return
    blocks = data.reshape(num_blocks, form.block_bytes)
    blocks.flags.writeable = False  # mapped weights are: one type, one compilation
    least = (_halves(blocks, form, "dmin"),) if format_name in ("Q4_K", "Q5_K") else ()
    _compiled(format_name)(blocks, _halves(blocks, form, "d"), out.reshape(num_blocks, -1), *least, *_tables(format_name))


def _halves(blocks: NDArray[np.uint8], form: Format, field: str) -> NDArray[np.float32]:
    """A float16 field of every block, as float32 [n]; numba has no float16 on the CPU."""
    names = [name for name, _ in form.fields]
    at = sum(size for _, size in form.fields[: names.index(field)])
    return blocks[:, at : at + 2].copy().view(np.float16).astype(np.float32).reshape(-1)


@functools.cache
def _compiled(format_name: str) -> Callable[..., None]:
    try:
        return njit(parallel=True, nogil=True, cache=True)(_KERNELS[format_name])
    except RuntimeError:  # numba found no folder that it may write to: compile for this process only
        return njit(parallel=True, nogil=True)(_KERNELS[format_name])


@functools.cache
def _tables(format_name: str) -> tuple[NDArray[Any], ...]:
    if format_name in ("IQ4_NL", "IQ4_XS"):
        return (np.array(IQ4_VALUES, np.float32),)
    if format_name in ("IQ2_XS", "IQ3_XXS"):
        return np.array(grid(format_name)), np.array(sign_bytes())
    return (np.array(grid(format_name)),) if format_name in ("IQ2_S", "IQ3_S") else ()


def _f32(data: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    out.view(np.uint8)[:] = data


def _f16(data: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    out[:] = data.view(np.float16)


def _bf16(data: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    words = out.view(np.uint32)
    words[:] = data.view(np.uint16)
    words <<= 16


_PLAIN: dict[str, Callable[[NDArray[np.uint8], NDArray[np.float32]], None]] = {"F32": _f32, "F16": _f16, "BF16": _bf16}
_KERNELS: dict[str, Callable[..., None]] = {
    "Q8_0": block_loops.q8_0, "Q4_0": block_loops.q4_0, "Q2_0": block_loops.q2_0,
    "IQ4_NL": block_loops.iq4_nl, "IQ4_XS": block_loops.iq4_xs, "IQ3_XXS": block_loops.iq3_xxs, "IQ3_S": block_loops.iq3_s,
    "IQ2_XS": block_loops.iq2_xs, "IQ2_S": block_loops.iq2_s,
    "Q4_K": block_loops.q4_k, "Q5_K": block_loops.q5_k, "Q6_K": block_loops.q6_k,
}  # fmt: skip
