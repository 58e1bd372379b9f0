"""A drive with faults: every read of one file goes through a seeded plan of late, short, refused and failed reads.

The reads are those of `os.preadv` and `os.pread`, which all readers but the mapped one use.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

_PREADV, _PREAD = os.preadv, os.pread


@dataclass
class Drive:
    """What happens to reads of `path`; shares are chances of each read. `reads` collects what was asked, for tests to count."""

    path: Path
    seed: int = 0
    late_s: float = 0.0  # at most so late, at random
    short: float = 0.0  # half of what is asked, in whole sectors
    refused: float = 0.0  # EINVAL of a direct read
    failed: Callable[[int, int], bool] = lambda offset, size: False  # EIO
    reads: list[tuple[int, int]] = field(default_factory=list)

    def install(self, patch: pytest.MonkeyPatch) -> Drive:
        self._inode, self._rng = os.stat(self.path).st_ino, np.random.default_rng(self.seed)
        patch.setattr(os, "preadv", self._preadv)
        patch.setattr(os, "pread", self._pread)
        return self

    def _preadv(self, handle: int, buffers: Sequence[memoryview], offset: int, flags: int = 0) -> int:
        if os.fstat(handle).st_ino != self._inode:
            return _PREADV(handle, buffers, offset)
        (buffer,) = buffers
        return _PREADV(handle, [buffer[: self._meet(handle, offset, len(buffer))]], offset)

    def _pread(self, handle: int, size: int, offset: int) -> bytes:
        return _PREAD(handle, self._meet(handle, offset, size) if os.fstat(handle).st_ino == self._inode else size, offset)

    def _meet(self, handle: int, offset: int, size: int) -> int:
        """How many bytes this read may give."""
        self.reads.append((offset, size))
        late, short, refused = self._rng.random(3)
        time.sleep(late * self.late_s)
        if self.failed(offset, size):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if refused < self.refused and fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return max(512, size // 2 // 512 * 512) if short < self.short and size > 512 else size
