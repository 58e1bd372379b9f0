"""Page-locked RAM for the keys and values that a card reads in place: taken once a session, cut anew for each sequence."""

from __future__ import annotations

from torch import Tensor

from strata_recipes.errors import DeviceError
from strata_recipes.files.aligned import AlignedBuffer
from strata_recipes.tiers.cuda_memory import LockedSlices, Locks, tensor_of
from strata_recipes.units import GiB, gib

LOCK_SLICE = GiB  # one huge registration could not be interrupted


class LockedCells:
    """`num_bytes` of it, locked; DeviceError where the system refuses, since no kernel could read it then."""

    def __init__(self, num_bytes: int, locks: Locks) -> None:
        self._memory = AlignedBuffer(num_bytes, 4096)
        whole = self._memory.bytes
        self._slices = LockedSlices([whole[at : at + LOCK_SLICE] for at in range(0, num_bytes, LOCK_SLICE)], locks)
        self._used = 0
        try:
            self._slices.wait()
            if self._slices.num_bytes < num_bytes:
                raise DeviceError(
                    f"the system page-locks {gib(self._slices.num_bytes)} of the {gib(num_bytes)} of keys and values beyond "
                    f"kv.resident_tokens: raise the limit of locked memory (ulimit -l), or use kv.resident_tokens=auto"
                )
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        """The next sequence takes the place of the last one."""
        self._used = 0

    def __call__(self, num_bytes: int) -> Tensor:
        """The next bytes."""
        at, self._used = self._used, self._used + num_bytes
        whole = self._memory.bytes
        assert self._used <= whole.size, f"{self._used} bytes of {whole.size} that were planned"
        return tensor_of(whole[at : self._used])

    def close(self) -> None:
        """Gives it back, once no kernel reads it."""
        self._slices.close()
        self._memory.close()
