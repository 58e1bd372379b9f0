"""Which matrices are multiplied with which rows: the arguments that every matvec shares. Knows no format and no expert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels_numba.device import address

MAX_ROWS = 8  # rows of x that one launch multiplies with a matrix at once


@dataclass(frozen=True)
class Jobs:
    """`table`: int64 [J] on the device, each the address of a blob, a multiple of 16, in VRAM or page-locked host memory; 0: no job.

    `rows`: int32 [J, S] on the device, the rows of x that job j multiplies; -1 where a slot has none. `offset`: of the matrix in
    its blob, in bytes, a multiple of 2. One dense matrix for R rows is J = 1, S = R; an expert a job is the mixture.
    """

    table: Any
    rows: Any
    offset: int = 0

    def __post_init__(self) -> None:
        if self.offset % 2 or self.offset < 0:
            raise ValueError(f"a matrix at byte {self.offset} of its blob: wanted a multiple of 2")

    @property
    def count(self) -> int:
        return int(self.table.shape[0])

    @property
    def slots(self) -> int:
        return int(self.rows.shape[1])

    @property
    def alignment(self) -> int:
        """Of the matrices' addresses, in bytes."""
        return min(self.offset & -self.offset, 16) if self.offset else 16

    def addresses(self) -> tuple[int, int]:
        """Of the table and of the rows, checked."""
        return address("table", self.table, "int64", (self.count,)), address("rows", self.rows, "int32", (self.count, self.slots))
