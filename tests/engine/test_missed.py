"""What a token's choices cost where kernels read RAM in place: counted, and held to the link that is stood in for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from strata_recipes.engine.missed import Missed
from strata_recipes.engine.token_stepper import _Pass
from strata_recipes.tiers.lookup import TierCounters

BLOB, STRIDE = 48, 64


class Tiers:
    """One layer of four experts: in a slot, in RAM, in RAM, in the file."""

    def __init__(self) -> None:
        self.counters = TierCounters()
        self.index = SimpleNamespace(layers=[SimpleNamespace(blob_bytes=BLOB, stride=STRIDE)])
        self.crossed: list[int] = []

    def up(self, num_bytes: int) -> AbstractContextManager[None]:
        self.crossed.append(num_bytes)
        return nullcontext()

    def read(self, layer: int, experts: Sequence[int], places: Sequence[Any]) -> None:
        for expert, place in zip(experts, places, strict=True):
            place[:] = expert


TABLE: Any = SimpleNamespace(host=np.array([[16, 32, 48, 0]]), in_vram=np.array([[True, False, False, False]]))


@pytest.mark.parametrize(
    ("chosen", "crossed", "addresses"),
    [([0, 1, 0, 2], 2, None), ([0, 0, 0, 0], 0, None), ([0, 3, 1, 3], 1, [0, 4096, 0, 4096])],
    ids=["held", "in slots", "missed"],
)
def test_a_choice_in_ram_crosses_the_link_once(chosen: list[int], crossed: int, addresses: list[int] | None) -> None:
    tiers: Any = Tiers()
    stage: Any = SimpleNamespace(bytes=np.zeros(4 * STRIDE, np.uint8), card_address=4096)
    missed = Missed(tiers, TABLE, 4, stage, torch.device("cpu"))
    assert missed.fetch(0, np.array(chosen, np.int32)) == (addresses is not None)
    assert (tiers.counters.vram_hits, tiers.counters.ram_hits, tiers.crossed) == (1, crossed, [crossed * BLOB])
    if addresses is not None:
        missed.send()
        assert missed.addresses.tolist() == addresses and stage.bytes[:STRIDE].tolist() == [3] * STRIDE


def test_so_does_one_of_a_whole_token() -> None:
    part: Any = object.__new__(_Pass)
    part._tiers, part._table = Tiers(), TABLE
    part._count(np.array([[[0, 1], [1, 2]]], np.int32))
    assert (part._tiers.counters.vram_hits, part._tiers.counters.ram_hits, part._tiers.crossed) == (1, 2, [2 * BLOB])
