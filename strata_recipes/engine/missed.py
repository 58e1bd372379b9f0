"""Experts that a token chose and no memory of the card's reach holds: read into page-locked RAM, where kernels read them in place."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from strata_recipes.plan.budget import max_stride
from strata_recipes.tiers.addresses import AddressTable
from strata_recipes.tiers.cuda_memory import LockedBuffer
from strata_recipes.tiers.lookup import ExpertTiers


class Missed:
    """Room for every choice of one layer: `most` blobs. A layer's are overwritten by the next one's, which the host knows only when
    the kernels that read them are done."""

    def __init__(
        self,
        tiers: ExpertTiers,
        table: AddressTable,
        most: int,
        stage: LockedBuffer,
        device: torch.device,
    ) -> None:
        self._tiers, self._table, self._stage = tiers, table, stage
        self._stride = max_stride(tiers.index)
        self._here = torch.zeros(most, dtype=torch.int64, pin_memory=device.type == "cuda")
        self.addresses = torch.zeros(most, dtype=torch.int64, device=device)

    def fetch(self, layer: int, chosen: NDArray[np.int32]) -> bool:
        """Reads those of `chosen` [R * k] that have no address, each once; whether there were any. All are counted."""
        held, once = self._table.host[layer, chosen] != 0, np.unique(chosen)
        in_vram = int(self._table.in_vram[layer, once].sum())
        in_ram = int((self._table.host[layer, once] != 0).sum()) - in_vram
        self._tiers.counters.vram_hits += in_vram
        self._tiers.counters.ram_hits += in_ram
        with self._tiers.up(in_ram * self._tiers.index.layers[layer].blob_bytes):  # which kernels read over the bus meanwhile
            return not held.all() and self._bring(layer, chosen, held)

    def send(self) -> None:
        """Queues the copy of the addresses; part of a graph."""
        self.addresses.copy_(self._here, non_blocking=True)

    def _bring(self, layer: int, chosen: NDArray[np.int32], held: NDArray[np.bool_]) -> bool:
        experts, which = np.unique(chosen[~held], return_inverse=True)
        self._tiers.read(layer, experts.tolist(), [self._place(number) for number in range(experts.size)])
        here = self._here.numpy()
        here[:] = 0
        here[~held] = self._stage.card_address + which * self._stride
        return True

    def _place(self, number: int) -> NDArray[np.uint8]:
        return self._stage.bytes[number * self._stride : (number + 1) * self._stride]
