"""A file that a workload names, whole and bounded: a pipe must not hang, nor /dev/zero fill the memory. Knows no content."""

from __future__ import annotations

from pathlib import Path
from stat import S_ISDIR, S_ISREG

from strata_recipes.errors import FileError

MOST_BYTES = 32 << 20  # far above any context


def read_user_file(path: str, key: str) -> bytes:
    """The bytes of a regular file; FileError names file, key and errno."""
    try:
        file_path = Path(path).expanduser()
        status = file_path.stat()
        if not S_ISREG(status.st_mode) and not S_ISDIR(status.st_mode):
            raise FileError(f"{path} ({key}) is a pipe or a device, a regular file is wanted")
        if status.st_size > MOST_BYTES:
            raise FileError(f"{path} ({key}) has {status.st_size:,} bytes, at most {MOST_BYTES:,} are read: shorten the prompt")
        with open(file_path, "rb") as file:
            return file.read(MOST_BYTES)
    except OSError as error:
        raise FileError(f"{path} ({key}) cannot be read: {error.strerror or error} (errno {error.errno})") from error
    except (ValueError, RuntimeError) as error:  # a NUL; a ~user whom nobody knows
        raise FileError(f"{path!r} ({key}) is not a path: {error}") from error
