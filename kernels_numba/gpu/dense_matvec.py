"""A few float32 rows times matrices that lie anywhere in device memory, one under the other, on the GPU; float32 sums. Knows no model."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from kernels_numba.device import Kernel, address
from kernels_numba.endings import Ending
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.codebooks import codebook_address
from kernels_numba.gpu.endings import STORED, apart, finish, places
from kernels_numba.gpu.float_products import float_cut, float_products
from kernels_numba.gpu.jobs import MAX_ROWS
from kernels_numba.gpu.teams import Cut, Finish, Stored, team_kernel


@dataclass(frozen=True)
class Stack:
    """Matrices [n_i, K] of one format. `table`: int64 [P] on the device, their addresses, multiples of 16; `ends`: int32 [P] on the

    device, n_0, n_0 + n_1, ..; `num_outs` is the last of them. `planar`: as repack.py orders them, each matrix by itself.
    """

    table: Any
    ends: Any
    num_outs: int
    format_name: str
    width: int
    planar: bool = False

    def __post_init__(self) -> None:
        FORMATS[self.format_name].row_bytes(self.width)
        if self.num_outs < 1 or self.width < 1:
            raise ValueError(f"a stack of {self.num_outs} rows of {self.width} values: wanted at least 1 of both")

    @property
    def count(self) -> int:
        return int(self.table.shape[0])

    @property
    def stored(self) -> Stored:
        form = FORMATS[self.format_name]
        return Stored(self.count, self.width, form.row_bytes(self.width), self.width // form.block_values, self.planar)

    def addresses(self) -> tuple[int, int]:
        """Of the table and of the ends, checked."""
        return address("table", self.table, "int64", (self.count,)), address("ends", self.ends, "int32", (self.count,))


def dense_matvec(x: Any, stack: Stack, to: Ending, stream: int = 0) -> None:
    """x W^T to its ending: x float32 [R, K], 16-byte aligned, W the matrices of the stack.

    Each sum errs by at most K / 32 + 13 roundings of its terms.
    """
    rows, end = int(x.shape[0]), finish(to)
    target, source = places(to, rows, stack.num_outs), address("x", x, "float32", (rows, stack.width))
    if source % 16:
        raise ValueError("x must start at a multiple of 16 bytes")
    shape = apart(to, float_cut(stack.width, stack.num_outs))
    for begin in range(0, rows, MAX_ROWS):
        kernel = dense_kernel(stack.format_name, stack.width, shape, min(rows - begin, MAX_ROWS), stack.stored, end)
        out, beside, width, first = target.at(begin)
        given = source + begin * stack.width * 4, 0, *stack.addresses(), out, beside
        kernel.launch(shape.blocks(stack.num_outs), stream, *given, stack.num_outs, width, first, codebook_address(stack.format_name))


@functools.cache
def dense_kernel(format_name: str, width: int, shape: Cut, rows: int, stored: Stored, end: Finish = STORED) -> Kernel:
    """For `rows` rows of x."""
    return team_kernel(float_products(format_name, width, shape, rows, stored.planar, 16), shape, rows, stored, end)
