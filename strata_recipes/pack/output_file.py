"""A file that is whole or not there: temporary name, space reserved, flushed, then renamed. Knows no content."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from pathlib import Path
from types import TracebackType

from strata_recipes.errors import FileError
from strata_recipes.pack.input_file import os_sentence
from strata_recipes.units import gib

TEMPORARY = ".tmp"


class OutputFile:
    """Written front to back under a name that no other process has; `commit` gives it its own. Left early, it vanishes."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size, self.written = path, size, 0
        self._temporary = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
        try:
            self._file = open(self._temporary, "xb", buffering=0)
        except OSError as error:
            raise FileError(os_sentence(self._temporary, "cannot be written", error)) from error
        try:
            _reserve(self._file.fileno(), size)
        except OSError as error:
            self._discard()
            raise self._failed(error) from error

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._discard()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends; FileError names the file and the bytes short where the drive is full."""
        view = memoryview(data)
        try:
            while view:
                count = self._file.write(view)
                self.written += count
                view = view[count:]
        except OSError as error:
            raise self._failed(error) from error

    def flush(self) -> None:
        """All bytes on the drive, so that the name that follows never stands for less."""
        if self.written != self.size:
            raise FileError(f"{self.path}: {self.written:,} bytes were written, {self.size:,} are wanted")
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failed(error) from error
        self._file.close()

    def commit(self) -> None:
        """Flushes if that is still to do, and takes the final name."""
        if not self._file.closed:
            self.flush()
        try:
            os.replace(self._temporary, self.path)
        except OSError as error:
            raise FileError(os_sentence(self.path, "cannot be replaced", error)) from error

    def _discard(self) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)

    def _failed(self, error: OSError) -> FileError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            short = self.size - self.written
            return FileError(
                f"{self.path} does not fit on its drive: {short:,} of {self.size:,} bytes could not be written (errno {error.errno})"
            )
        return FileError(os_sentence(self.path, f"cannot be written at offset {self.written:,}", error))


def check_space(folder: Path, num_bytes: int) -> None:
    """FileError with both numbers where the drive has less free than a pack needs."""
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise FileError(
            f"{folder} has {gib(free)} free, the pack needs {gib(num_bytes)}: {num_bytes - free:,} bytes short; "
            "free some, or state model.pack on another drive"
        )


def sync_folder(folder: Path) -> None:
    """Makes renames lasting. Windows has no such call, and needs none."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _reserve(handle: int, size: int) -> None:
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
