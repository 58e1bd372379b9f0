"""How decode reads the file tier: through the page cache or past it, and the threshold for asking again after the RAM copy."""

from __future__ import annotations

from dataclasses import dataclass

from strata_recipes.plan.plan import Decision
from strata_recipes.units import gib

# Through the cache the public engine's decode gained 7 to 118 % down to 7 % of the files cached (Linux); on Windows it wants all of them.
CACHED_SHARE = {"linux": 0.07, "windows": 1.0}


@dataclass(frozen=True)
class FileIoChoice:
    value: str  # buffered or direct
    threshold_bytes: int  # buffered while RAM available after the copy is at least this
    decision: Decision


def cache_keeps(available_bytes: int, ram_bytes: int, read_bytes: int, room_bytes: int, share: float = 1.0) -> bool:
    """Whether the page cache can hold `share` of the bytes that files are read for, once RAM took `ram_bytes`."""
    return available_bytes - ram_bytes - room_bytes >= read_bytes * share


def choose_file_io(asked: str, os: str, cache_bytes: int, ram_bytes: int, file_bytes: int, room_bytes: int) -> FileIoChoice:
    """`cache_bytes` is available RAM less `room_bytes`, `ram_bytes` all that the plan puts in RAM, `file_bytes` the file tier."""
    share = CACHED_SHARE[os]
    threshold = -int(-file_bytes * share // 1) + room_bytes
    left = cache_bytes - ram_bytes
    keeps = cache_keeps(cache_bytes + room_bytes, ram_bytes, file_bytes, room_bytes, share)
    numbers = f"{gib(max(left, 0))} of page cache beside the plan's RAM, for {gib(file_bytes)} of experts in the file"
    if asked != "auto":
        value, because = asked, f"stated; {numbers}"
    elif keeps or file_bytes == 0:
        value, because = "buffered", f"{numbers}: enough ({share:.0%} is asked for on {os.capitalize()})"
    elif os == "linux":
        value, because = "direct", f"{numbers}: under {share:.0%}, so decode reads past the cache"
    else:
        value, because = "buffered", f"{numbers}: not enough, but reads past the cache are not built for Windows in this version"
    return FileIoChoice(value, threshold, Decision("experts.file_io", value, because))
