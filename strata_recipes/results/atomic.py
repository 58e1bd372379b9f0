"""Files written whole or not at all: through a temporary name, then renamed. Does not know what is in them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from strata_recipes.errors import FileError

ROOT_REMEDY = "set results.root to a folder with room"


def write_text(path: Path, text: str) -> None:
    """UTF-8 with LF on every system; what a shell passed in another encoding is written as U+FFFD."""
    data = to_utf8(text)
    write_binary(path, lambda file: file.write(data), num_bytes=len(data))


def write_binary(path: Path, write: Callable[[BinaryIO], object], remedy: str = ROOT_REMEDY, num_bytes: int | None = None) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it there. Two processes that write one file each have their own.

    `num_bytes`: what it writes, where that is known before.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise FileError(f"{path.name} cannot be written ({why(error, path.parent, num_bytes)}): {remedy}") from error


def why(error: OSError, folder: Path, num_bytes: int | None = None) -> str:
    """What the system says, with its errno; of a full drive also what is free there, and what was to be written."""
    said = f"{error.strerror or error}, errno {error.errno}"
    if error.errno != errno.ENOSPC:
        return said
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    wanted = "" if num_bytes is None else f", {num_bytes:,} are wanted"
    return f"{said}; {there} has {shutil.disk_usage(there).free:,} bytes free{wanted}"


def check_place(path: Path, stated: str) -> None:
    """FileError where no file could be written, before hours of work. `stated`: the setting as the user gave it, key=value."""
    if path.is_dir():
        what = "is a folder"
    elif not path.parent.is_dir():
        what = f"would lie in {path.parent}, which is no folder"
    elif not os.access(path.parent, os.W_OK):
        what = f"would lie in {path.parent}, which may not be written"
    else:
        return
    raise FileError(f"{stated} {what}: name a file in a folder that is there and can be written")


def to_utf8(text: str) -> bytes:
    """Bytes that any reader takes: surrogates, which a narrow locale puts for bytes of an argument, become those bytes again."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode("utf-8")
