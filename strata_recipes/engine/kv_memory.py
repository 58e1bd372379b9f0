"""Page-locked RAM for the keys and values that a card reads in place: taken once a session, cut anew for each sequence."""

from __future__ import annotations

from strata_recipes.errors import DeviceError
from strata_recipes.files.aligned import AlignedBuffer
from strata_recipes.model.kv_cells import HostPart
from strata_recipes.tiers.cuda_memory import LockedSlices, Locks, tensor_of
from strata_recipes.units import GiB, gib

LOCK_SLICE = GiB  # one huge registration could not be interrupted


class LockedCells:
    """`num_bytes` of it, locked; DeviceError where the system refuses or the card does not reach it: no kernel could read it then."""

    def __init__(self, num_bytes: int, locks: Locks) -> None:
        self._memory, self._locks = AlignedBuffer(num_bytes, 4096), locks
        self._slices: LockedSlices | None = None
        self._used = 0
        try:
            shifts = self._lock(LOCK_SLICE)
            if len(shifts) > 1:  # a card that finds slices apart could not read an array that lies across: they become one
                self._slices.close()
                shifts = self._lock(num_bytes)
            (self._shift,) = shifts
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        """The next sequence takes the place of the last one."""
        self._used = 0

    def __call__(self, num_bytes: int) -> HostPart:
        """The next bytes."""
        at, self._used = self._used, self._used + num_bytes
        whole = self._memory.bytes
        assert self._used <= whole.size, f"{self._used} bytes of {whole.size} that were planned"
        part = whole[at : self._used]
        return HostPart(tensor_of(part), part.ctypes.data + self._shift)

    def close(self) -> None:
        """Gives it back, once no kernel reads it."""
        if self._slices is not None:
            self._slices.close()
        self._memory.close()

    def _lock(self, size: int) -> set[int]:
        """All of it, in slices of that size. -> how far from the host's own addresses the card finds each: 0 on most systems."""
        whole = self._memory.bytes
        parts = [whole[at : at + size] for at in range(0, whole.size, size)]
        self._slices = LockedSlices(parts, self._locks)
        self._slices.wait()
        found = [self._slices.card_address(part) for part in parts]
        reached = sum(part.size for part, address in zip(parts, found, strict=True) if address)
        if reached < whole.size:
            raise DeviceError(
                f"the system page-locks {gib(reached)} of the {gib(whole.size)} of keys and values beyond "
                f"kv.resident_tokens: raise the limit of locked memory (ulimit -l), or use kv.resident_tokens=auto"
            )
        return {address - part.ctypes.data for part, address in zip(parts, found, strict=True)}
