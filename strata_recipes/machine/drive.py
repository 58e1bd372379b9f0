"""How fast a folder's drive reads: short probes of a big file there, or of a temporary one. Knows no experts.

Three rates: direct reads past the page cache; a cold mapping, page fault by page fault; a copy out of the warm cache.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from strata_recipes.units import MiB

PIECE = 4 * MiB
DIRECT_SECONDS, THREADS = 0.15, 4
MAPPED_BYTES = 16 * MiB
TEMPORARY_BYTES = 64 * MiB
# where nothing can be probed: a SATA drive's class, so that a plan is not too hopeful
ASSUMED_DIRECT, ASSUMED_FAULTS, ASSUMED_CACHED = 0.5e9, 0.4e9, 4e9


@dataclass(frozen=True)
class Rates:
    """Bytes a second; names in `assumed` are defaults, not findings."""

    direct: float
    faults: float
    cached: float
    assumed: tuple[str, ...]


def probe_drive(folder: Path) -> Rates:
    """At most about half a second of reading; assumed rates where the file system does not let itself be probed."""
    assumed = Rates(ASSUMED_DIRECT, ASSUMED_FAULTS, ASSUMED_CACHED, ("direct", "faults", "cached"))
    if not hasattr(os, "O_DIRECT"):
        return assumed
    try:
        with _big_file(existing_folder(folder)) as path:
            faults, cached = mapped_rates(path)
            return Rates(direct_rate(path), faults, cached, ())
    except OSError:  # a read-only folder, no space, or a file system without direct reads: `assumed` says so in the plan
        return assumed


def existing_folder(folder: Path) -> Path:
    """The folder itself, or the nearest one above that is there: the same drive."""
    found = folder.absolute()
    while not found.is_dir():
        found = found.parent
    return found


@contextlib.contextmanager
def _big_file(folder: Path) -> Iterator[Path]:
    files = [entry for entry in os.scandir(folder) if entry.is_file()]
    big = max(files, key=lambda entry: entry.stat().st_size, default=None)
    if big is not None and big.stat().st_size >= TEMPORARY_BYTES and os.access(big.path, os.R_OK):
        yield Path(big.path)
        return
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".drive-probe-") as file:
        block = np.random.default_rng(0).integers(0, 256, PIECE, dtype=np.uint8)  # a drive may compress zeros
        for _ in range(TEMPORARY_BYTES // PIECE):
            file.write(block.data)
        file.flush()
        os.fsync(file.fileno())
        yield Path(file.name)


def direct_rate(path: Path, piece_bytes: int = PIECE, num_threads: int = THREADS) -> float:
    """Bytes a second: threads take turns on pieces of the file until the time is over or the file is."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
    pieces, lock, done = iter(range(os.fstat(handle).st_size // piece_bytes)), threading.Lock(), [0]
    failed: list[OSError] = []
    begin = time.perf_counter()

    def work() -> None:
        buffer = mmap.mmap(-1, piece_bytes)  # page-aligned
        over = False
        while not over:  # one piece at least: on a busy PC a thread may begin when the time is over
            with lock:
                piece = next(pieces, None)
            if piece is None:
                return
            try:
                count = os.preadv(handle, [buffer], piece * piece_bytes)
            except OSError as error:
                failed.append(error)
                return
            with lock:
                done[0] += count
            over = time.perf_counter() - begin >= DIRECT_SECONDS

    try:
        threads = [threading.Thread(target=work) for _ in range(num_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        os.close(handle)
    if failed:
        raise failed[0]
    return done[0] / (time.perf_counter() - begin)


def mapped_rates(path: Path) -> tuple[float, float]:
    """The end of the file copied out of a mapping, once dropped from the page cache and once right after."""
    size = os.path.getsize(path)
    start = max(0, size - MAPPED_BYTES) // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, start, 0, os.POSIX_FADV_DONTNEED)
        return _copy_rate(handle, start, size - start), _copy_rate(handle, start, size - start)
    finally:
        os.close(handle)


def _copy_rate(handle: int, start: int, length: int) -> float:
    into = np.ones(length, np.uint8)  # touched before the clock starts
    begin = time.perf_counter()
    with mmap.mmap(handle, length, prot=mmap.PROT_READ, offset=start) as view:
        source = np.frombuffer(view, np.uint8)
        np.copyto(into, source)
        del source
    return length / (time.perf_counter() - begin)
