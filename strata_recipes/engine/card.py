"""The card that a plan computes on: opened, checked and held to the plan's budget. Plans nothing, holds no expert."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from kernels_numba.device import DeviceMismatch, check_device
from kernels_numba.gpu.selftest import self_test
from strata_recipes.errors import DeviceError
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.budget import DENSE, EXPERT_ROWS, RING, SLOTS
from strata_recipes.plan.plan import Plan
from strata_recipes.tiers.cuda_memory import Locks
from strata_recipes.units import gib

AT_ONCE = (DENSE, RING, EXPERT_ROWS, SLOTS)  # parts that are there when the slots are taken; the others come with the prompt


class Card:
    """Device 0, once it has decoded one known block of every format in use."""

    def __init__(self, plan: Plan, index: PackIndex, note: Callable[[str], None], log: Callable[[str], None]) -> None:
        self.device = torch.device("cuda", 0)
        self.locks = Locks(note)
        self.note = note
        self.later_bytes = sum(part.num_bytes for part in plan.vram.parts if part.name not in AT_ONCE)
        try:
            if not torch.cuda.is_available():
                raise DeviceMismatch("torch finds no usable card")
            log(f"{torch.cuda.get_device_name(self.device)}: {check_device()}, torch {torch.__version__}")
            self_test(_formats(index))
        except DeviceMismatch as failure:
            raise DeviceError(f"the plan computes on a card, and {failure}: mend the driver, or use compute.device=cpu") from failure
        self._limit_bytes = plan.vram.limit_bytes
        self._hold(plan)

    def peak_bytes(self) -> int:
        """The most VRAM that this process ever held, but for the driver's own."""
        return torch.cuda.max_memory_reserved(self.device)

    @contextmanager
    def memory(self) -> Iterator[None]:
        """DeviceError where the work inside asks for more than the plan's budget."""
        try:
            yield
        except torch.cuda.OutOfMemoryError as error:
            raise DeviceError(
                f"the card gave no more than the plan's budget of {gib(self._limit_bytes)} ({str(error).splitlines()[0]}): "
                "lower prefill.chunk or kv.max_context, or raise hardware.gpu.reserve"
            ) from error

    def _hold(self, plan: Plan) -> None:
        """torch gives no more than the plan's budget, whatever the card has."""
        free, whole = torch.cuda.mem_get_info(self.device)
        if plan.vram.used_bytes > free:
            raise DeviceError(
                f"the plan takes {gib(plan.vram.used_bytes)} of VRAM and {gib(free)} is free: close what else uses the card, or plan again"
            )
        if plan.model.scale == 1.0:  # a scale model's budget is smaller than what torch takes at once: the ledger alone holds it
            torch.cuda.set_per_process_memory_fraction(min(1.0, plan.vram.limit_bytes / whole), self.device)
        torch.cuda.reset_peak_memory_stats(self.device)


def _formats(index: PackIndex) -> set[str]:
    experts = {name for layer in index.layers for name in (layer.gate, layer.up, layer.down)}
    return experts | {tensor.format for tensor in index.dense}
