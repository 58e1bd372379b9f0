"""Rows sorted by expert, cut into tiles: the arguments that every grouped matmul shares. Knows no format.

`tiles_of` is where empty experts are skipped and experts with many rows are split, on the host, before anything launches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels_numba.device import address

TILE_ROWS = 64


def tiles_of(counts: NDArray[Any]) -> NDArray[np.int32]:
    """Rows of each group, in sorted order -> int32 [tiles, 3]: group, first sorted row, rows (1 to TILE_ROWS)."""
    sizes = np.asarray(counts, np.int64)
    if sizes.ndim != 1 or (sizes < 0).any() or sizes.sum() > 2**31 - 1:
        raise ValueError(f"row counts of shape {sizes.shape} with a sum of {sizes.sum()}: wanted one axis, none negative, a sum in 31 bits")
    tiles = -(-sizes // TILE_ROWS)
    group = np.repeat(np.arange(len(sizes)), tiles)
    place = np.arange(tiles.sum()) - np.repeat(np.cumsum(tiles) - tiles, tiles)
    first = (np.cumsum(sizes) - sizes)[group] + place * TILE_ROWS
    rows = np.minimum(sizes[group] - place * TILE_ROWS, TILE_ROWS)
    return np.stack([group, first, rows], axis=1).astype(np.int32)


@dataclass(frozen=True)
class Groups:
    """`table`: int64 [G] on the device, each the address of an expert's blob, a multiple of 16. `tiles`: tiles_of, on the device.

    `rows`: int32 [R] on the device, the row of x that each sorted row is; None where x is sorted already.
    """

    table: Any
    tiles: Any
    rows: Any = None

    @property
    def num_tiles(self) -> int:
        return int(self.tiles.shape[0])

    def addresses(self) -> tuple[int, int, int]:
        """Of table, tiles and rows (0 for none), checked."""
        rows = 0 if self.rows is None else address("rows", self.rows, "int32", (-1,))
        return address("table", self.table, "int64", (-1,)), address("tiles", self.tiles, "int32", (self.num_tiles, 3)), rows


@dataclass(frozen=True)
class Part:
    """One matrix of a blob: its format and where in the blob it lies, a multiple of 2."""

    format: str
    offset: int

    @property
    def alignment(self) -> int:
        return min(self.offset & -self.offset, 16) if self.offset else 16
