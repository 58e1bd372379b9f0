"""Checksums of blobs, and identities of source files from their ends. Knows no format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import xxhash

from strata_recipes.pack.index import FORMAT_VERSION
from strata_recipes.pack.input_file import InputFile
from strata_recipes.units import MiB

PACKAGE = Path(__file__).resolve().parents[1]
_IN_PACKAGE = "{strata_recipes}/"  # a source shipped inside this package is found wherever that is installed


@dataclass(frozen=True)
class SourceFile:
    """A file that a pack was made from. `digest`: xxh3-128 hex over its first and last MiB."""

    path: str
    size: int
    digest: str

    @property
    def real_path(self) -> Path:
        text = self.path
        return PACKAGE / text.removeprefix(_IN_PACKAGE) if text.startswith(_IN_PACKAGE) else Path(text)


def blob_checksum(payload: bytes | memoryview, layer: int, expert: int) -> int:
    """xxh3-64 of a blob, seeded with its place, so that two swapped blobs are found."""
    return xxhash.xxh3_64_intdigest(payload, seed=layer << 16 | expert)


def source_file(path: Path) -> SourceFile:
    """Size and identity of a file; reads 2 MiB of it at most."""
    with InputFile(path) as file:
        head = file.read(0, min(MiB, file.size))
        tail = file.read(max(0, file.size - MiB), min(MiB, file.size))
        digest = xxhash.xxh3_128_hexdigest(head + tail)
        return SourceFile(_stored(path), file.size, digest)


def sources_key(files: Iterable[SourceFile]) -> str:
    """xxh3-128 hex over format version, names, sizes and ends of the sources: the pack's id, and its folder's name in the cache."""
    lines = [f"strata pack {FORMAT_VERSION}"]
    lines += [f"{Path(f.path).name}\t{f.size}\t{f.digest}" for f in files]
    return xxhash.xxh3_128_hexdigest("\n".join(lines).encode("utf-8", "surrogateescape"))


def _stored(path: Path) -> str:
    whole = path.absolute()
    return _IN_PACKAGE + whole.relative_to(PACKAGE).as_posix() if whole.is_relative_to(PACKAGE) else str(whole)
