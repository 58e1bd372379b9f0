"""When a run is to be stopped because the PC runs out of RAM. Told times and sizes, it reads no clock and no memory."""

from __future__ import annotations

from strata_recipes.units import gib


class Watchdog:
    """Bites once less than `low_bytes` was available at every look for `after_s` seconds."""

    def __init__(self, low_bytes: int, after_s: float) -> None:
        self._low_bytes = low_bytes
        self._after_s = after_s
        self._since: float | None = None

    def seen(self, seconds: float, available_bytes: int) -> str | None:
        """A look; why the run is to be stopped, or None."""
        if available_bytes >= self._low_bytes:
            self._since = None
            return None
        if self._since is None:
            self._since = seconds
        if seconds - self._since < self._after_s:
            return None
        return (
            f"available RAM stayed under {gib(self._low_bytes)} for {seconds - self._since:.1f} s and was {gib(available_bytes)} "
            f"{seconds:.1f} s after the start"
        )
