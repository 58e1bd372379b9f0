"""Drive rates found earlier today, so that a second run does not probe again and plans from the same numbers."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from pathlib import Path

from strata_recipes.machine.drive import Rates

LIFETIME_S = 24 * 3600


def cache_folder() -> Path:
    """In the user's cache: $XDG_CACHE_HOME or ~/.cache, %LOCALAPPDATA% on Windows; a temporary folder where there is no home."""
    stated = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", "")
    if stated and Path(stated).is_absolute():
        return Path(stated) / "strata_recipes"
    try:
        return Path.home() / ".cache" / "strata_recipes"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / "strata_recipes"


def remembered(cache: Path, device: int) -> Rates | None:
    """Rates of that drive, if a whole and fresh record is there."""
    try:
        data = json.loads(_record(cache, device).read_text(encoding="utf-8"))
        if not 0 <= time.time() - data["at"] < LIFETIME_S:
            return None
        rates = Rates(float(data["direct"]), float(data["faults"]), float(data["cached"]), ())
        return rates if min(rates.direct, rates.faults, rates.cached) > 0 else None
    except (OSError, ValueError, KeyError, TypeError):  # no record, or a damaged one: probe again
        return None


def remember(cache: Path, device: int, rates: Rates) -> None:
    """Written whole or not at all; a cache folder that cannot be written is not worth a stop."""
    record = _record(cache, device)
    partial = record.with_name(f"{record.name}.{os.getpid()}")
    data = {"at": time.time(), "direct": rates.direct, "faults": rates.faults, "cached": rates.cached}
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(data), encoding="utf-8")
        os.replace(partial, record)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()


def _record(cache: Path, device: int) -> Path:
    return cache / f"drive-{device:x}.json"
