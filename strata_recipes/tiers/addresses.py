"""Where a kernel finds each expert now: a table of addresses, in VRAM or in page-locked RAM, on the card and beside it. Moves nothing."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from strata_recipes.tiers.cuda_slots import ALIGNMENT
from strata_recipes.tiers.lookup import ExpertTiers


class AddressTable:
    """int64 [layers, experts]; 0: no address, the expert is in the file, or in RAM that the card does not reach."""

    def __init__(self, tiers: ExpertTiers, device: torch.device) -> None:
        g = tiers.index.geometry
        self._tiers = tiers
        self.host: NDArray[np.int64] = np.zeros((g.num_layers, g.num_experts), np.int64)
        self.in_vram: NDArray[np.bool_] = np.zeros(self.host.shape, np.bool_)
        self.on_card = torch.zeros(self.host.shape, dtype=torch.int64, device=device)
        self.near = torch.zeros(self.host.shape, dtype=torch.uint8, device=device)  # in_vram, on the card
        self.refresh((*tiers.vram.pairs(), *tiers.ram.pairs()))

    @property
    def whole(self) -> bool:
        """Whether every expert has an address."""
        return bool(self.host.all())

    @property
    def whole_wherever(self) -> bool:
        """Whether every expert has one, and would have one too where it gave its slot up to be read in RAM."""
        return self.whole and all(self._in_ram(*pair) for pair in self._tiers.ram.pairs() if self.in_vram[pair])

    def refresh(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Looks these up again, and tells the card."""
        for layer, expert in pairs:
            self.host[layer, expert], self.in_vram[layer, expert] = self._found(layer, expert)
        self.on_card.copy_(torch.from_numpy(self.host))
        self.near.copy_(torch.from_numpy(self.in_vram))

    def _found(self, layer: int, expert: int) -> tuple[int, bool]:
        tiers = self._tiers
        if (layer, expert) in tiers.vram:
            return tiers.address(layer, expert) or 0, True
        if (layer, expert) not in tiers.ram:
            return 0, False
        return self._in_ram(layer, expert), False

    def _in_ram(self, layer: int, expert: int) -> int:
        found = self._tiers.card_address(self._tiers.ram.blob(layer, expert))
        return 0 if found % ALIGNMENT else found
