"""A card's memory without a card: what a pass over tensors that hold nothing allocates, and how torch's allocator would cut it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

MIB = 1 << 20
BLOCK = 512
Event = tuple[bool, int, int]  # taken or given back, which, bytes


class Allocations(TorchDispatchMode):
    """Every storage made inside the block, in order; what was there before is not counted."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.live_bytes = self.peak_bytes = 0
        self._known: dict[int, int] = {}
        self._before = {_key(tensor) for tensor in gc.get_objects() if isinstance(tensor, Tensor)}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_iter(out):
            if isinstance(tensor, Tensor):
                self._see(tensor)
        return out

    def _see(self, tensor: Tensor) -> None:
        key, storage = _key(tensor), tensor.untyped_storage()
        if key in self._known or key in self._before:
            return
        number, size = len(self.events), -(-storage.nbytes() // BLOCK) * BLOCK
        self._known[key] = number
        self.events.append((True, number, size))
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        weakref.finalize(storage, self._gone, key, number, size)

    def _gone(self, key: int, number: int, size: int) -> None:
        del self._known[key]
        self.events.append((False, number, size))
        self.live_bytes -= size


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


@dataclass(eq=False)
class _Piece:
    num_bytes: int
    owner: int | None = None


class Caching:
    """The rules of torch's caching allocator (native backend, one stream): segments of 2 MiB for pieces up to 1 MiB, of 20 MiB below 10,
    of whole 2 MiB above; the best fit is split, neighbours are joined, and whole free segments are given up when `limit` is met."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._segments: list[list[_Piece]] = []

    def take(self, owner: int, num_bytes: int) -> bool:
        """False where the limit does not hold it."""
        small = num_bytes <= MIB
        segment, piece = self._fitting(num_bytes, small) or self._grown(num_bytes, small)
        if piece is None:
            return False
        rest = piece.num_bytes - num_bytes
        if rest >= BLOCK if small else rest > MIB:
            segment.insert(segment.index(piece) + 1, _Piece(rest))
            piece.num_bytes = num_bytes
        piece.owner = owner
        return True

    def give_back(self, owner: int) -> None:
        segment = next(pieces for pieces in self._segments if any(piece.owner == owner for piece in pieces))
        next(piece for piece in segment if piece.owner == owner).owner = None
        for at in range(len(segment) - 1, 0, -1):
            if segment[at].owner is None and segment[at - 1].owner is None:
                segment[at - 1].num_bytes += segment.pop(at).num_bytes

    def _fitting(self, num_bytes: int, small: bool) -> tuple[list[_Piece], _Piece] | None:
        free = [
            (piece.num_bytes, at, segment, piece)
            for at, segment in enumerate(self._segments)
            if (_size(segment) == 2 * MIB) == small
            for piece in segment
            if piece.owner is None and piece.num_bytes >= num_bytes
        ]
        return min(free, key=lambda found: found[:2])[2:] if free else None

    def _grown(self, num_bytes: int, small: bool) -> tuple[list[_Piece], _Piece | None]:
        size = 2 * MIB if small else 20 * MIB if num_bytes < 10 * MIB else -(-num_bytes // (2 * MIB)) * 2 * MIB
        if self._reserved() + size > self._limit:
            self._segments = [segment for segment in self._segments if len(segment) > 1 or segment[0].owner is not None]
        if self._reserved() + size > self._limit:
            return [], None
        self._segments.append([_Piece(size)])
        return self._segments[-1], self._segments[-1][0]

    def _reserved(self) -> int:
        return sum(map(_size, self._segments))


def _size(segment: Sequence[_Piece]) -> int:
    return sum(piece.num_bytes for piece in segment)


def holds(limit_bytes: int, events: Sequence[Event]) -> bool:
    """Whether a card of so much memory would have carried these out."""
    card = Caching(limit_bytes)
    for taken, owner, num_bytes in events:
        if not taken:
            card.give_back(owner)
        elif not card.take(owner, num_bytes):
            return False
    return True


def least_limit(events: Sequence[Event]) -> int:
    """In whole MiB."""
    fails, works = 0, 4096
    while works - fails > 1:
        middle = (fails + works) // 2
        fails, works = (fails, middle) if holds(middle * MIB, events) else (middle, works)
    return works * MIB
