"""Owns every byte of both budgets: nothing big is allocated before it was taken here. Does not allocate itself."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import TracebackType

from strata_recipes.errors import DeviceError
from strata_recipes.units import gib

_KNOBS = {
    "vram": "lower kv.max_context, prefill.chunk or experts.slots, or raise hardware.gpu.vram",
    "ram": "lower experts.ram_budget or kv.max_context, or raise hardware.available",
}


@dataclass(frozen=True)
class BudgetUse:
    """One budget at one moment; `parts` in the order in which they were first taken."""

    limit_bytes: int
    used_bytes: int
    peak_bytes: int
    parts: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class LedgerUse:
    vram: BudgetUse
    ram: BudgetUse


class Ledger:
    """Two budgets in bytes. Safe from any thread; what is taken never passes a budget, at no moment."""

    def __init__(self, vram_bytes: int, ram_bytes: int) -> None:
        self._lock = threading.Lock()
        self._accounts = {"vram": _Account(vram_bytes), "ram": _Account(ram_bytes)}

    def take(self, budget: str, name: str, num_bytes: int) -> Taken:
        """Reserves bytes of `vram` or `ram` for a named part; DeviceError, and nothing taken, where they are not there."""
        if num_bytes < 0:
            raise ValueError(f"{name} asks for {num_bytes} bytes")
        with self._lock:
            account = self._accounts[budget]
            if account.used + num_bytes > account.limit:
                raise DeviceError(_too_little(budget, account, name, num_bytes))
            account.add(name, num_bytes)
        return Taken(self, budget, name, num_bytes)

    def give_back(self, taken: Taken) -> None:
        """Ends a reservation; doing so twice is nothing."""
        with self._lock:
            if taken.open:
                taken.open = False
                self._accounts[taken.budget].add(taken.name, -taken.num_bytes)

    def use(self) -> LedgerUse:
        """What is taken now, and the most that ever was."""
        with self._lock:
            return LedgerUse(self._accounts["vram"].use(), self._accounts["ram"].use())


class Taken:
    """A reservation; as a context manager it ends with the block."""

    def __init__(self, ledger: Ledger, budget: str, name: str, num_bytes: int) -> None:
        self.budget = budget
        self.name = name
        self.num_bytes = num_bytes
        self.open = True
        self._ledger = ledger

    def give_back(self) -> None:
        self._ledger.give_back(self)

    def __enter__(self) -> Taken:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.give_back()


class _Account:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.peak = 0
        self.parts: dict[str, int] = {}

    def add(self, name: str, num_bytes: int) -> None:
        self.used += num_bytes
        self.peak = max(self.peak, self.used)
        self.parts[name] = self.parts.get(name, 0) + num_bytes

    def use(self) -> BudgetUse:
        return BudgetUse(self.limit, self.used, self.peak, tuple(self.parts.items()))


def _too_little(budget: str, account: _Account, name: str, num_bytes: int) -> str:
    parts = ", ".join(f"{part} {gib(size)}" for part, size in account.parts.items() if size) or "nothing"
    short = account.used + num_bytes - account.limit
    return (
        f"the {budget} budget of {account.limit} bytes ({gib(account.limit)}) cannot give {num_bytes} bytes ({gib(num_bytes)}) for {name}: "
        f"{account.used} are taken ({parts}), {short} are missing; {_KNOBS[budget]}"
    )
