"""A read of any range cut into aligned reads as unbuffered files want them. Plain arithmetic: knows no file and no system."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

PIECE_BYTES = 8 << 20  # NTFS, unmapped: 8.6 GB/s at 8 MiB, more at smaller ones only with dozens under way
STAGE_BYTES = 1 << 20  # one read by way of a stage buffer


@dataclass(frozen=True)
class Piece:
    """One aligned read, and which of its bytes are wanted where: out[at : at + wanted] = window[skip : skip + wanted]."""

    offset: int
    num_bytes: int
    skip: int
    wanted: int
    at: int

    def fits(self, address: int, alignment: int) -> bool:
        """Whether the read may go straight to the wanted bytes' own place, `address` being that of `out`."""
        return self.skip == 0 and self.wanted == self.num_bytes and (address + self.at) % alignment == 0


def pieces(offset: int, num_bytes: int, address: int, alignment: int) -> list[Piece]:
    """Covers the range once, in order. Where buffer and file are aligned alike, only head and tail need a stage buffer."""
    end = offset + num_bytes
    first, last = -(-offset // alignment) * alignment, end // alignment * alignment
    if (address - offset) % alignment or first >= last:
        return list(_windows(offset, end, offset, STAGE_BYTES, alignment))
    return [
        *_windows(offset, first, offset, STAGE_BYTES, alignment),
        *_windows(first, last, offset, PIECE_BYTES, alignment),
        *_windows(last, end, offset, STAGE_BYTES, alignment),
    ]


def _windows(start: int, end: int, origin: int, step: int, alignment: int) -> Iterator[Piece]:
    step = max(step, alignment)
    while start < end:
        low = start // alignment * alignment
        high = min(low + step, -(-end // alignment) * alignment)
        wanted = min(end, high) - start
        yield Piece(low, high - low, start - low, wanted, start - origin)
        start += wanted
