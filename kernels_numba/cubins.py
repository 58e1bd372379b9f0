"""Compiled kernels on disk: only the first start with a GPU compiles, later ones load. Knows no driver."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

_HASH = hashlib.sha256
_HASH_BYTES = _HASH().digest_size


@dataclass(frozen=True)
class Cubin:
    """Machine code of one kernel, and the name that the driver finds it by."""

    entry: str
    code: bytes


@functools.cache
def folder() -> Path | None:
    """In the user's cache: $XDG_CACHE_HOME or ~/.cache, %LOCALAPPDATA% on Windows. None where there is no home: what lies in a
    temporary folder another user could have put there, and it would run."""
    stated = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", "")
    try:
        root = Path(stated) if stated and Path(stated).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None
    return root / "strata_recipes" / "kernels"


def kept(key: str, place: Path | None) -> Cubin | None:
    """What `keep` wrote there under that key; None where there is nothing, or not the whole of it."""
    if place is None:
        return None
    try:
        data = _path(key, place).read_bytes()
    except OSError:
        return None
    body = data[_HASH_BYTES:]
    if _HASH(body).digest() != data[:_HASH_BYTES]:
        return None
    entry, _, code = body.partition(b"\n")
    return Cubin(entry.decode(), code)


def keep(key: str, cubin: Cubin, place: Path | None) -> None:
    """Written whole or not at all. Where it cannot be written, that is said once: each start will compile again."""
    if place is None:
        _not_kept(f"there is no home folder: set {'LOCALAPPDATA' if os.name == 'nt' else 'XDG_CACHE_HOME'}")
        return
    body = cubin.entry.encode() + b"\n" + cubin.code
    try:
        place.mkdir(parents=True, exist_ok=True)
        _write(_path(key, place), _HASH(body).digest() + body)
    except OSError as error:
        if kept(key, place) is None:  # Windows replaces no file that another process, which kept it first, is reading
            _not_kept(f"{place}: {error.strerror}")


def _write(path: Path, data: bytes) -> None:
    """Through a file of its own: threads, and processes of one number in two containers, may keep the same kernel at once."""
    number, partial = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with open(number, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


@functools.cache
def _not_kept(why: str) -> None:
    warnings.warn(f"compiled kernels cannot be kept, so each start compiles them again ({why})", RuntimeWarning, stacklevel=2)


def _path(key: str, place: Path) -> Path:
    return place / f"{key}.cubin"
