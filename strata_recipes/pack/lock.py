"""One packer a folder: a lock that the system drops when its owner dies, so that a stale file never blocks."""

from __future__ import annotations

import errno
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO

from strata_recipes.errors import FileError
from strata_recipes.pack.input_file import os_sentence

LOCK_FILE = ".lock"
_BUSY = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_PAUSE_S = 0.1


class FolderLock:
    """Held inside `with`. `waited` says that another process held it first, and may have done the work."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE
        self.waited = False
        self._file: IO[bytes] | None = None

    def __enter__(self) -> FolderLock:
        try:
            self._file = open(self._path, "ab")
            while not try_lock(self._file):
                self.waited = True
                time.sleep(_PAUSE_S)
        except OSError as error:
            self._close()
            raise FileError(os_sentence(self._path, "cannot be locked", error)) from error
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def _close(self) -> None:
        if self._file:
            self._file.close()  # drops the lock


def try_lock(file: IO[bytes]) -> bool:
    """Whether this open file is now locked by us; False where another process has it. Closing it drops the lock."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True
