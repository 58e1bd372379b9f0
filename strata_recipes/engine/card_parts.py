"""What a session computes with on a card: its dense weights, and what runs its experts. Obeys the plan."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import torch

from strata_recipes.engine.card import Card
from strata_recipes.model.cuda_experts import CudaExperts
from strata_recipes.model.dense_slabs import Dense, ResidentDense
from strata_recipes.model.experts import Experts
from strata_recipes.model.streamed_dense import CardCopies, StreamedDense
from strata_recipes.pack.index import PackIndex
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.budget import EXPERT_ROWS, RING, RING_SLOTS, expert_row_bytes
from strata_recipes.plan.plan import Plan
from strata_recipes.tiers.blobs import Pair
from strata_recipes.tiers.cuda_memory import LockedBuffer, tensor_of
from strata_recipes.tiers.ring import Ring


def dense_weights(plan: Plan, pack: Pack, card: Card, opened: ExitStack) -> Dense:
    """On the card, or in page-locked RAM where a prompt has them go up layer by layer; given back with `opened`."""
    if plan.prefill.dense == "resident":
        return ResidentDense(pack, card.device)

    def host(num_bytes: int) -> torch.Tensor:
        buffer = LockedBuffer(num_bytes, 4096, card.locks)
        opened.callback(buffer.close)
        return tensor_of(buffer.bytes)

    dense = StreamedDense(pack, card.device, host, CardCopies(card.device))
    opened.callback(dense.close)
    return dense


def cuda_experts(plan: Plan, index: PackIndex, card: Card, in_ram: Callable[[Pair], bool], opened: ExitStack) -> Experts:
    """With the ring that brings blobs to the card, given back with `opened`. `in_ram`: whether a blob's host bytes stay where they are."""
    ring = Ring(RING_SLOTS, plan.vram.part(RING) // RING_SLOTS, card.device, lambda layer, expert: in_ram((layer, expert)))
    opened.callback(ring.close)
    rows = plan.vram.part(EXPERT_ROWS) // expert_row_bytes(index.geometry)
    return CudaExperts(index, plan.compute.arithmetic, ring, rows, card.device)
