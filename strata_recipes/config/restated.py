"""A replay that states what its folder had found: such a fact is the user's from then on. Does not compose."""

from __future__ import annotations

from collections.abc import Iterable

from strata_recipes.config.schema import Config
from strata_recipes.machine.facts import DEVICE, ESTIMATED


def restate(config: Config, overrides: Iterable[str]) -> None:
    """Takes from `hardware.probed` what the overrides of a replay state, so that record and hash do not call it found. Of a section that
    is given as a whole (`hardware.drive={direct: 1e9}`) all is."""
    stated = tuple(f"{line.lstrip('+').partition('=')[0]}." for line in overrides)
    config.hardware.probed = [key for key in config.hardware.probed if not f"{probed_key(key)}.".startswith(stated)]


def probed_key(entry: str) -> str:
    """The key of the config that an entry of `hardware.probed` is about."""
    name = entry.removesuffix(ESTIMATED)
    return name if name == DEVICE or name.startswith("hardware.") else f"hardware.{name}"
