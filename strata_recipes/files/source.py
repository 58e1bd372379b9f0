"""An open file of experts: what every reader offers, its counters and its identity. Does not know what the bytes mean."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from strata_recipes.errors import FileError

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Identity:
    """What tells a file from one that took its place or its bytes."""

    inode: int
    size: int
    mtime_ns: int


class Counters:
    """Payload bytes and reads of one file, and how many were under way at once. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.bytes_read = 0
        self.reads = 0
        self.buffered_reads = 0  # of a direct reader: ranges that the page cache had to give
        self.in_flight = 0
        self.in_flight_peak = 0

    @contextmanager
    def reading(self, num_bytes: int) -> Iterator[None]:
        """Counts one read while it is under way; its bytes count only when it succeeds."""
        with self._lock:
            self.in_flight += 1
            self.in_flight_peak = max(self.in_flight_peak, self.in_flight)
        try:
            yield
            with self._lock:
                self.bytes_read += num_bytes
                self.reads += 1
        finally:
            with self._lock:
                self.in_flight -= 1

    def fell_back(self) -> None:
        """Counts a range that the page cache had to give."""
        with self._lock:
            self.buffered_reads += 1


class ExpertFile(Protocol):
    """A file of known size, read by range from any thread. A failed read raises FileError with file, offset, length, errno."""

    path: Path
    size: int
    counters: Counters

    def read(self, offset: int, num_bytes: int, out: Bytes) -> None:
        """Fills out[:num_bytes] with the file's bytes from `offset`."""

    def check(self) -> None:
        """FileError if the path no longer leads to the file that was opened, unchanged."""

    def close(self) -> None:
        """Gives the handle back; closing twice is nothing."""


class FileHandle:
    """A regular file opened for reading, its size checked before anything else and its identity kept."""

    def __init__(self, path: Path, size: int, flags: int = 0) -> None:
        self.path = path
        self.size = size
        self.number = _open(path, flags)
        try:
            self.identity = _regular(path, os.fstat(self.number))
            if self.identity.size != size:
                raise FileError(_wrong_size(path, self.identity.size, size))
        except FileError:
            self.close()
            raise

    def check_size(self) -> None:
        """FileError if the open file was cut or grew: one system call, cheap enough for every read."""
        now = os.fstat(self.number).st_size
        if now != self.size:
            raise FileError(_wrong_size(self.path, now, self.size))

    def check(self) -> None:
        """FileError if the file was cut, rewritten, replaced or removed since it was opened."""
        self.check_size()
        try:
            at_path = os.stat(self.path)
        except OSError as error:
            raise FileError(
                f"{self.path} can no longer be found ({error.strerror}, errno {error.errno}): put it back or start again"
            ) from error
        check_same(self.path, self.identity, _identity(at_path))

    def close(self) -> None:
        if self.number >= 0:
            os.close(self.number)
            self.number = -1


def check_same(path: Path, opened: Identity, now: Identity) -> None:
    """FileError if the file of now is not the one that was opened, or was written to."""
    if now.inode != opened.inode:
        raise FileError(f"{path} was replaced while in use (inode {opened.inode} is now {now.inode}): start again to use the new file")
    if now != opened:
        raise FileError(
            f"{path} was written to while in use (modified at {now.mtime_ns} ns, opened as of {opened.mtime_ns} ns): "
            "pack it again, then start again"
        )


def read_failed(path: Path, offset: int, num_bytes: int, error: OSError) -> FileError:
    """The error of a read that the system refused."""
    return FileError(
        f"{path}: reading {num_bytes} bytes at offset {offset} failed with {error.strerror} (errno {error.errno}): "
        "check the drive, then start again"
    )


def ended_early(path: Path, offset: int, num_bytes: int, got: int) -> FileError:
    """The error of a read that met the end of the file."""
    return FileError(f"{path}: the file ended {got} bytes into a read of {num_bytes} bytes at offset {offset}: it was cut, pack it again")


def check_range(path: Path, size: int, offset: int, num_bytes: int, room: int) -> None:
    """ValueError for a range outside the file or the buffer: a caller's mistake, not the file's."""
    if not (0 <= offset and 0 <= num_bytes <= room and offset + num_bytes <= size):
        raise ValueError(f"{num_bytes} bytes at {offset} do not lie in {path} of {size} bytes and a buffer of {room}")


def _open(path: Path, flags: int) -> int:
    # O_NONBLOCK: a FIFO under the file's name must be refused, not waited for
    flags |= os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        return os.open(path, flags)
    except OSError as error:
        raise FileError(f"{path} cannot be opened: {error.strerror} (errno {error.errno})") from error


def _regular(path: Path, found: os.stat_result) -> Identity:
    if not stat.S_ISREG(found.st_mode):
        raise FileError(f"{path} is not a regular file (mode {stat.filemode(found.st_mode)}): name the file of the pack")
    return _identity(found)


def _identity(found: os.stat_result) -> Identity:
    return Identity(found.st_ino, found.st_size, found.st_mtime_ns)


def _wrong_size(path: Path, found: int, wanted: int) -> str:
    return f"{path} has {found} bytes, the pack's index wants {wanted}: pack it again"
