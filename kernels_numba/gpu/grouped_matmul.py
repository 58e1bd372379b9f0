"""Sorted rows times their experts' quantized matrices on the GPU: gate and up with SiLU between them, and down. Knows no tier.

compute "bf16" and "f16": operands rounded to that, tensor cores, float32 sums (grouped_mma.py). "f32": all float32 (grouped_f32.py).
"q8": the same kernel on activations that quantize_rows.round_rows rounded.
A row's bits depend on the row and its expert alone: every tile has one size, short ones are filled with zeros.
"""

from __future__ import annotations

from typing import Any

from kernels_numba.device import address
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.codebooks import codebook_address
from kernels_numba.gpu.grouped_f32 import f32_kernel
from kernels_numba.gpu.grouped_mma import mma_kernel
from kernels_numba.gpu.groups import Groups, Part
from kernels_numba.gpu.quantize_rows import round_rows

COMPUTE = {"f32": "float32", "bf16": "bits16", "f16": "bits16", "q8": "float32"}


def grouped_gate_up(
    x: Any, groups: Groups, gate: Part, up: Part, num_outs: int, out: Any, compute: str, planar: bool = False, stream: int = 0
) -> None:
    """out[i] = silu(x[rows[i]] gate^T) * (x[rows[i]] up^T): x [*, K] and out [R, num_outs] as `compute` says (bf16, f16: as bits; q8: as
    float32 values that round_rows made).

    K is a multiple of 8, num_outs of 2. The products' sums and the silu are float32; out is rounded to `compute`.
    """
    _launch(x, groups, (gate, up), num_outs, out, compute, COMPUTE[compute], planar, stream)
    if compute == "q8":
        round_rows(out, out, stream)


def grouped_down(x: Any, groups: Groups, down: Part, num_outs: int, out: Any, compute: str, planar: bool = False, stream: int = 0) -> None:
    """out[i] = x[i] down^T: x [R, K] as `compute` says, out float32 [R, num_outs]. K is a multiple of 8, num_outs of 2."""
    _launch(x, groups, (down,), num_outs, out, compute, "float32", planar, stream)


def _launch(
    x: Any, groups: Groups, parts: tuple[Part, ...], num_outs: int, out: Any, compute: str, out_type: str, planar: bool, stream: int
) -> None:
    width = int(x.shape[1])
    for part in parts:
        FORMATS[part.format].row_bytes(width)
    if width % 8 or num_outs % 2:
        raise ValueError(f"a grouped matmul of {width} inputs and {num_outs} outputs: wanted a multiple of 8 and of 2")
    pointers = address("x", x, COMPUTE[compute], (-1, width)), *groups.addresses(), address("out", out, out_type, (-1, num_outs))
    if pointers[0] % 16:
        raise ValueError("x must start at a multiple of 16 bytes")
    formats, alignments = tuple(p.format for p in parts), tuple(p.alignment for p in parts)
    if COMPUTE[compute] == "float32":
        kernel, outs_a_block = f32_kernel(formats, num_outs, width, planar, alignments), 64 // len(parts)
    else:
        kernel, outs_a_block = mma_kernel(formats, num_outs, width, compute, planar, alignments), 128 // len(parts)
    offsets = parts[0].offset, parts[-1].offset
    books = codebook_address(formats[0]), codebook_address(formats[-1])
    kernel.launch(groups.num_tiles * -(-num_outs // outs_a_block), stream, *pointers, *offsets, *books)
