"""Checksums of blobs where they lie: each on the way in, and those of a whole tier. Does not know how blobs are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strata_recipes.errors import FileError
from strata_recipes.files.source import Bytes
from strata_recipes.pack.checksum import blob_checksum
from strata_recipes.pack.index import PackIndex
from strata_recipes.tiers.blobs import FilledTier


def blob_check(path: Path, index: PackIndex, checksums: NDArray[np.uint64]) -> Callable[[int, int, Bytes], None]:
    """A check of one blob against the pack's checksums [layers, experts]; FileError names file, offset, length, both sums."""

    def check(layer: int, expert: int, blob: Bytes) -> None:
        found, wanted = blob_checksum(blob.data, layer, expert), int(checksums[layer, expert])
        if found != wanted:
            raise FileError(
                f"{path}: expert {expert} of layer {layer}, {blob.size} bytes at offset {index.offset(layer, expert)}, "
                f"has checksum {found:016x} where the pack says {wanted:016x}: pack it again"
            )

    return check


def tier_checksums(tier: FilledTier) -> list[tuple[int, int, int]]:
    """(layer, expert, checksum) of all that a tier holds, read back from its memory."""
    return [(layer, expert, blob_checksum(tier.bytes(layer, expert).data, layer, expert)) for layer, expert in tier.pairs()]
