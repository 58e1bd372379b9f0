"""A regular file read by offset, checked before it is opened. Knows no format, but what is often found in a weight's place."""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from strata_recipes.errors import FileError, PackError

PARTIAL_SUFFIXES = (".incomplete", ".part", ".crdownload", ".aria2")
_LFS = b"version https://git-lfs"


def regular_size(path: Path) -> int:
    """Bytes of a regular file that is not empty; FileError says what stands there instead."""
    try:
        info = path.stat()
    except FileNotFoundError:
        raise FileError(_missing(path)) from None
    except (OSError, ValueError) as error:
        raise FileError(os_sentence(path, "cannot be looked at", error)) from error
    if stat.S_ISDIR(info.st_mode):
        raise FileError(f"{path} is a folder, a file is wanted")
    if not stat.S_ISREG(info.st_mode):
        raise FileError(f"{path} is a pipe or a device, a regular file is wanted")
    if info.st_size == 0:
        raise FileError(f"{path} is empty (0 bytes): fetch it again")
    return info.st_size


def os_sentence(path: Path, what: str, error: OSError | ValueError) -> str:
    """One sentence on a failed call, with its errno."""
    if isinstance(error, OSError):
        return f"{path} {what}: {error.strerror or error} (errno {error.errno})"
    return f"{str(path)!r} is not a path: {error}"


@contextmanager
def stated_as(key: str, value: str) -> Iterator[None]:
    """What is wrong with a file in the block names the setting that stated it, key=value."""
    try:
        yield
    except (FileError, PackError) as error:
        told = str(error)
        raise type(error)(f"{key}={told}" if told.startswith((f"{value} ", f"{value}: ")) else f"{key}={value}: {told}") from error


class InputFile:
    """Reads by offset from one open file. Every read is checked against the size found at the start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = regular_size(path)
        self._lock = threading.Lock()
        try:
            self._file = open(path, "rb", buffering=0)
        except OSError as error:
            raise FileError(os_sentence(path, "cannot be opened", error)) from error

    def __enter__(self) -> InputFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def read(self, offset: int, num_bytes: int) -> bytes:
        """Exactly `num_bytes` from `offset`; FileError names file, offset, length and errno."""
        if offset < 0 or num_bytes < 0 or offset + num_bytes > self.size:
            raise FileError(f"{self.path} has {self.size:,} bytes, {num_bytes:,} at offset {offset:,} are wanted")
        try:
            data = self._read_once(offset, num_bytes)
            while len(data) < num_bytes:
                more = self._read_once(offset + len(data), num_bytes - len(data))
                if not more:
                    raise FileError(
                        f"{self.path} was shortened while in use: {len(data):,} of {num_bytes:,} bytes at offset {offset:,} could be read"
                    )
                data += more
        except OSError as error:
            raise FileError(os_sentence(self.path, f"cannot be read, {num_bytes:,} bytes at offset {offset:,}", error)) from error
        return data

    def _read_once(self, offset: int, num_bytes: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._file.fileno(), num_bytes, offset)
        with self._lock:  # Windows has no positional read
            self._file.seek(offset)
            return self._file.read(num_bytes) or b""


def refuse_what_is_no_weight(file: InputFile) -> None:
    """FileError for a Git LFS pointer, a web page, or a file of zeros, each with its remedy."""
    head = file.read(0, min(file.size, 1024))
    if head.startswith(_LFS):
        stands_for = re.search(rb"size (\d{1,20})", head)
        size = f" for {int(stands_for[1]):,} bytes" if stands_for else ""
        raise FileError(f"{file.path} is a Git LFS pointer{size}, {file.size:,} bytes long: fetch the file itself with `git lfs pull`")
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower().startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        raise FileError(f"{file.path} is a web page of {file.size:,} bytes, not weights: the download got an error or login page")
    if not any(head):
        raise FileError(f"{file.path} starts with {len(head):,} zero bytes: it was preallocated and never filled, fetch it again")


def _missing(path: Path) -> str:
    for partial in (path.with_name(path.name + suffix) for suffix in PARTIAL_SUFFIXES):
        if partial.exists():
            return f"{path} is not there, only {partial.name}: the download did not finish, start it again"
    if path.is_symlink():
        return f"{path} is a link to {os.readlink(path)}, which is not there: the download did not finish, start it again"
    return f"{path} does not exist"
