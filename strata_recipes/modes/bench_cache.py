"""What of a pack lies in the page cache before a run: nothing, all, or what is there anyway. Sets it, and looks whether it is so."""

from __future__ import annotations

from pathlib import Path

from strata_recipes.config.choices import BenchCache
from strata_recipes.errors import DeviceError
from strata_recipes.files.residency import cached_bytes, drop_cached
from strata_recipes.units import gib, mib

_READ_BYTES = 1 << 23


def set_cache(wanted: BenchCache, pack: Path) -> tuple[int | None, str | None]:
    """Bytes of the pack's files in the page cache afterwards, and why that is not what was wanted; None where it is."""
    files = [path for path in sorted(pack.iterdir()) if path.is_file()]
    for path in files:
        if wanted is BenchCache.cold and not drop_cached(path):
            raise DeviceError("bench.cache=cold: this system cannot be asked to drop a file from its page cache, take bench.cache=asis")
        if wanted is BenchCache.warm:
            _read(path)
    found = [cached_bytes(path) for path in files]
    if any(held is None for held in found):
        if wanted is not BenchCache.asis:
            raise DeviceError(f"bench.cache={wanted.name}: this system does not tell what its page cache holds, take bench.cache=asis")
        return None, None
    held, size = sum(filter(None, found)), sum(path.stat().st_size for path in files)
    if wanted is BenchCache.cold and held:
        return held, f"{mib(held)} of the pack stayed in the page cache after it was dropped: another process may hold it open"
    if wanted is BenchCache.warm and held < size:
        return held, f"{gib(held)} of the pack's {gib(size)} are in the page cache after it was read: there is too little RAM to keep it"
    return held, None


def _read(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(_READ_BYTES)
        while file.readinto(buffer):
            pass
