"""VRAM slots on a card: where each (layer, expert) lies there, and how its bytes get up. Does not know why these blobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from strata_recipes.errors import DeviceError
from strata_recipes.files.aligned import AlignedBuffer
from strata_recipes.files.source import Bytes
from strata_recipes.plan.allocator import SEGMENT_BYTES
from strata_recipes.plan.budget import SLOTS
from strata_recipes.schedule.startup import Copy
from strata_recipes.tiers.arena import SLICE_BYTES
from strata_recipes.tiers.blobs import Pair
from strata_recipes.tiers.cuda_memory import LockedBuffer, Locks, Note, tensor_of
from strata_recipes.tiers.ledger import Ledger

ALIGNMENT = 16  # what the kernels read at once; true blobs are multiples of it, small ones lose at most 15 bytes to the reserve


@dataclass(frozen=True)
class Slot:
    """A blob that is on the card already."""

    address: int
    num_bytes: int


class CudaSlots:
    """Slots in slices of at most 1 GiB. Where the card holds fewer than planned, the last ones are left to the other tiers."""

    def __init__(self, copies: Sequence[Copy], ledger: Ledger, device: torch.device, locks: Locks, note: Note, keep_bytes: int) -> None:
        """`keep_bytes`: of VRAM that stay free, the plan's reserve."""
        self._copies = sorted(copies, key=lambda copy: copy.index)
        self._device = device
        self._locks = locks
        self._stream = torch.cuda.Stream(device)
        self._places: dict[Pair, torch.Tensor] = {}
        self._slots: dict[Pair, Slot] = {}  # where these are: a chunk asks for hundreds in every layer
        self._rooms: dict[Pair, torch.Tensor] = {}  # the whole slot, of which a smaller blob that came later takes the first bytes
        self._slices: list[torch.Tensor] = []
        self._bounce: list[tuple[AlignedBuffer, torch.cuda.Event]] = []
        self._turn = 0
        self._taken = ledger.take("vram", SLOTS, sum(copy.num_bytes for copy in copies))
        try:
            self._allocate(keep_bytes, note)
            self._stream.wait_stream(torch.cuda.current_stream(device))  # whose kernels may still use what the slots are made of
            self.num_bytes = sum(place.numel() for place in self._places.values())
        except BaseException:
            self.close()
            raise

    def __contains__(self, pair: tuple[int, int]) -> bool:
        return pair in self._places

    def __len__(self) -> int:
        return len(self._places)

    def pairs(self) -> list[tuple[int, int]]:
        return sorted(self._places)

    def blob(self, layer: int, expert: int) -> Slot:
        return self._slots[layer, expert]

    def all_of(self, layer: int, experts: Sequence[int]) -> list[Slot] | None:
        """Those of one layer; None where one of them has no slot."""
        try:
            return [self._slots[layer, expert] for expert in experts]
        except KeyError:
            return None

    def bytes(self, layer: int, expert: int) -> Bytes:
        """Read back from the card."""
        return self._places[layer, expert].cpu().numpy()

    def buffer(self, num_bytes: int, alignment: int) -> AlignedBuffer:
        """Memory that `write` takes from without waiting."""
        return LockedBuffer(num_bytes, alignment, self._locks)

    def write(self, layer: int, expert: int, blob: Bytes) -> None:
        """Starts the copy of one blob to its slot; the bytes must stay as they are until `flush`."""
        with torch.cuda.stream(self._stream):
            self._places[layer, expert].copy_(tensor_of(blob), non_blocking=True)

    def flush(self) -> None:
        """Waits for all copies, and gives up what they came through."""
        self._stream.synchronize()
        for buffer, _ in self._bounce:
            buffer.close()
        self._bounce = []

    @contextmanager
    def receive(self, layer: int, expert: int) -> Iterator[Bytes]:
        """Host memory for one blob, which goes up at the end of the block, while the next is read into the other buffer."""
        if not self._bounce:
            largest = max(copy.num_bytes for copy in self._copies)
            self._bounce = [(self.buffer(largest, 4096), torch.cuda.Event()) for _ in range(2)]
        buffer, sent = self._bounce[self._turn]
        self._turn = 1 - self._turn
        sent.synchronize()
        view = buffer.bytes[: self._places[layer, expert].numel()]
        yield view
        self.write(layer, expert, view)
        sent.record(self._stream)

    def room(self, layer: int, expert: int) -> int:
        """Bytes of its slot."""
        return self._rooms[layer, expert].numel()

    def read(self, layer: int, expert: int, out: Bytes) -> None:
        """One blob, copied down; kernels that read it meanwhile change nothing."""
        place = self._places[layer, expert]
        with torch.cuda.stream(self._stream):
            tensor_of(out[: place.numel()]).copy_(place, non_blocking=True)
        self._stream.synchronize()

    def replace(self, old: Pair, new: Pair, blob: Bytes) -> None:
        """`new` where `old` was.

        All that was launched, on whatever stream, is done before the slot changes: it may read the slot, and the host memory that
        an exchange writes next (kernels read page-locked RAM, the ring copies from it). The copy is done when this returns: what is
        launched from then on finds it, on whatever stream, and `blob` may change.
        """
        torch.cuda.synchronize(self._device)
        room = self._rooms.pop(old)
        del self._places[old], self._slots[old]
        with torch.cuda.stream(self._stream):
            room[: blob.size].copy_(tensor_of(blob), non_blocking=True)
        self._stream.synchronize()
        self._put(new, room, blob.size)

    def close(self) -> None:
        self.flush()
        self._places, self._slots, self._rooms, self._slices = {}, {}, {}, []
        torch.cuda.empty_cache()
        self._taken.give_back()

    def _put(self, pair: Pair, room: torch.Tensor, num_bytes: int) -> None:
        self._places[pair], self._rooms[pair] = room[:num_bytes], room
        self._slots[pair] = Slot(room.data_ptr(), num_bytes)

    def _allocate(self, keep_bytes: int, note: Note) -> None:
        todo, done = self._copies, 0
        while done < len(todo):
            run = _run(todo, done)
            part = self._slice(sum(_rounded(copy.num_bytes) for copy in run), keep_bytes)
            if part is None:
                break
            at = 0
            for copy in run:
                self._put((copy.layer, copy.expert), part[at : at + copy.num_bytes], copy.num_bytes)
                at += _rounded(copy.num_bytes)
            done += len(run)
        if done < len(todo):
            free = torch.cuda.mem_get_info(self._device)[0]
            note(
                f"the card holds {done} of the planned {len(todo)} slots: {free} bytes are free now and {keep_bytes} stay so; "
                f"{len(todo) - done} experts are read from the file instead"
            )

    def _slice(self, num_bytes: int, keep_bytes: int) -> torch.Tensor | None:
        """None where the card cannot give it and keep its reserve."""
        if torch.cuda.mem_get_info(self._device)[0] - num_bytes < keep_bytes:
            return None
        try:
            part = torch.empty(num_bytes, dtype=torch.uint8, device=self._device)
        except torch.cuda.OutOfMemoryError:
            return None
        if part.data_ptr() % ALIGNMENT:
            raise DeviceError(f"the driver gave VRAM at {part.data_ptr():#x}, no multiple of {ALIGNMENT}: update it")
        self._slices.append(part)
        return part


def _run(copies: Sequence[Copy], first: int) -> Sequence[Copy]:
    """The copies from `first` on that share a slice, at least one. Where not all fit it is cut in its last eighth, where that leaves the
    least of a segment: 27 slices of as many as fit would leave 25 MiB that no plan counts."""
    sizes = np.cumsum([_rounded(copy.num_bytes) for copy in copies[first : first + SLICE_BYTES // ALIGNMENT]])
    count = max(1, int(np.searchsorted(sizes, SLICE_BYTES, side="right")))
    if first + count < len(copies):
        left = -sizes[count - count // 8 - 1 : count] % SEGMENT_BYTES
        count -= int(np.argmin(left[::-1]))
    return copies[first : first + count]


def _rounded(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT
