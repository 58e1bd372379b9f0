"""VRAM that blobs outside the slots pass through: half of it is computed from while the other half is copied to.

Knows blobs and events, not what is computed. Copies run on a stream of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch

from strata_recipes.files.source import Bytes
from strata_recipes.tiers.cuda_memory import tensor_of
from strata_recipes.tiers.cuda_slots import ALIGNMENT, Slot

Arrived = list[tuple[int, int]]  # (expert, address)


class Blobs(Protocol):
    """Whatever holds the experts: host bytes valid until the next step, or a slot."""

    def blobs(self, layer: int, experts: Sequence[int]) -> Iterator[tuple[int, Bytes | Slot]]: ...


class Ring:
    """`num_slots` places of `slot_bytes`. `stays(layer, expert)`: its host bytes do not move before all that was launched is done, so
    their copy need not be waited for."""

    def __init__(self, num_slots: int, slot_bytes: int, device: torch.device, stays: Callable[[int, int], bool]) -> None:
        self._half = num_slots // 2
        self._slot_bytes = -(-slot_bytes // ALIGNMENT) * ALIGNMENT
        self.memory = torch.empty(num_slots * self._slot_bytes, dtype=torch.uint8, device=device)
        self._stays = stays
        self._stream = torch.cuda.Stream(device)
        self._used = [torch.cuda.Event(), torch.cuda.Event()]  # by half: what was computed from it is done
        self._side = 0

    def groups(self, layer: int, experts: Sequence[int], blobs: Blobs) -> Iterator[Arrived]:
        """Neighbouring experts with their addresses; the kernels that read them are launched before the next step."""
        group: Arrived = []
        staged = 0
        for expert, blob in blobs.blobs(layer, experts):
            if isinstance(blob, Slot):
                group.append((expert, blob.address))
                continue
            if staged == self._half:
                yield from self._hand_over(group, staged)
                group, staged = [], 0
            if not staged:
                self._stream.wait_event(self._used[self._side])
            place = self._place(staged, blob.size)
            with torch.cuda.stream(self._stream):
                place.copy_(tensor_of(blob), non_blocking=True)
            if not self._stays(layer, expert):
                self._stream.synchronize()  # the buffer goes to the next read at the next step
            group.append((expert, place.data_ptr()))
            staged += 1
        if group:
            yield from self._hand_over(group, staged)

    def close(self) -> None:
        self._stream.synchronize()
        self.memory = self.memory[:0].clone()

    def _hand_over(self, group: Arrived, staged: int) -> Iterator[Arrived]:
        """The group once its copies are ordered before the kernels; then this half is theirs until they are done."""
        computing = torch.cuda.current_stream()
        computing.wait_stream(self._stream)
        yield group
        if staged:
            self._used[self._side].record(computing)
            self._side = 1 - self._side

    def _place(self, number: int, num_bytes: int) -> torch.Tensor:
        start = (self._side * self._half + number) * self._slot_bytes
        return self.memory[start : start + num_bytes]
