"""Overrides of a mode that runs other configs than its own: what it would pass over is refused."""

from __future__ import annotations

from collections.abc import Sequence

from strata_recipes.errors import ConfigError


def own_words_only(overrides: Sequence[str], mode: str) -> None:
    """ConfigError for each override that this mode does not read: the runs that it starts have configs of their own."""
    own = ("mode", "results", "recipe", "result" if mode == "reproduce" else mode)
    keys = [line.lstrip("+~").partition("=")[0] for line in overrides]
    foreign = [key for key in keys if key.partition(".")[0] not in own or key == "results.logits"]
    if foreign:
        raise ConfigError([f"{key} does not apply to mode={mode}, whose runs have their own config: leave it out" for key in foreign])
