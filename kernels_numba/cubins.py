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
def folder() -> Path:
    """In the user's cache: $XDG_CACHE_HOME or ~/.cache, %LOCALAPPDATA% on Windows; a temporary folder where there is no home."""
    stated = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", "")
    try:
        root = Path(stated) if stated and Path(stated).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        root = Path(tempfile.gettempdir())
    return root / "strata_recipes" / "kernels"


def kept(key: str, place: Path) -> Cubin | None:
    """What `keep` wrote there under that key; None where there is nothing, or not the whole of it."""
    try:
        data = _path(key, place).read_bytes()
    except OSError:
        return None
    body = data[_HASH_BYTES:]
    if _HASH(body).digest() != data[:_HASH_BYTES]:
        return None
    entry, _, code = body.partition(b"\n")
    return Cubin(entry.decode(), code)


def keep(key: str, cubin: Cubin, place: Path) -> None:
    """Written whole or not at all. Where it cannot be written, that is said once: each start will compile again."""
    path, body = _path(key, place), cubin.entry.encode() + b"\n" + cubin.code
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        place.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(_HASH(body).digest() + body)
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        _not_kept(f"{place}: {error.strerror}")


@functools.cache
def _not_kept(why: str) -> None:
    warnings.warn(f"compiled kernels cannot be kept, so each start compiles them again ({why})", RuntimeWarning, stacklevel=2)


def _path(key: str, place: Path) -> Path:
    return place / f"{key}.cubin"
