"""What a run computed, as checksums: two runs with the same identity gave the same bits. Knows no time and no machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np
import xxhash


@dataclass(frozen=True)
class Identity:
    """Hex digests; null where nothing was generated, or experts.verify was off."""

    tokens_md5: str | None = None
    first_logits_md5: str | None = None
    slots_checksum: str | None = None
    ram_checksum: str | None = None
    pack_id: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def tokens_md5(tokens: Iterable[int]) -> str:
    """MD5 over the generated ids as int32, little-endian."""
    return _md5(np.fromiter(tokens, "<i4"))


def first_logits_md5(logits: np.ndarray) -> str:
    """MD5 over the logits of the first generated token, float32 [vocab], little-endian."""
    return _md5(np.ascontiguousarray(logits, "<f4"))


def tier_checksum(blobs: Iterable[tuple[int, int, int]]) -> str:
    """xxh3-64 over the sorted (layer, expert, checksum) of a tier, as uint32, uint32, uint64, little-endian."""
    rows = np.array(sorted(blobs), dtype=[("layer", "<u4"), ("expert", "<u4"), ("checksum", "<u8")])
    return xxhash.xxh3_64_hexdigest(rows.tobytes())


def _md5(values: np.ndarray) -> str:
    return hashlib.md5(values.tobytes(), usedforsecurity=False).hexdigest()
