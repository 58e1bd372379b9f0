"""Settings that one mode reads and the mode that runs passes over: told, so that none is silently ignored. Pure.

Noted, not refused: a recipe of a bench or of a table may be planned or run as it is, and a folder's config with another mode. Settings of a
sweep are refused where none runs (modes/entry.py): without -m, sweep.resume would do again what it was to leave out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from strata_recipes.config.choices import ModeName
from strata_recipes.config.leaf_lines import value_at
from strata_recipes.config.leaves import defaults, leaves, plain
from strata_recipes.config.schema import Config

READERS = {
    "mode.table": ModeName.simulate,
    "mode.profiles": ModeName.fit,
    "bench": ModeName.bench,
    "verify": ModeName.verify,
    "result": ModeName.reproduce,
    "calibrate": ModeName.calibrate,
    "profile": ModeName.profile,
}
# Modes that read a part of the config: what is said beside it on the command line is for another mode.
_READS = {
    ModeName.pack: ("model",),
    ModeName.calibrate: ("model", "startup"),  # whose drive is measured, and which reads are the program's own
}
_READS_NOT = {ModeName.profile: ("workload",)}  # its prompts are profile.files
_ALWAYS = ("mode", "recipe", "results", "hydra", *READERS)


def passed_over(config: Config) -> list[str]:
    """A sentence for each mode that does not run and has settings in this config other than the schema's own."""
    found, own = plain(config), defaults(Config)
    stated = [leaf.key for leaf in leaves(Config) if value_at(found, leaf.key) != value_at(own, leaf.key)]
    return list(_sentences(stated, config.mode.name))


def unread_words(overrides: Sequence[str], mode: ModeName) -> list[str]:
    """A sentence where the command line says what this mode, which reads a part of the config, does not read."""
    keys = dict.fromkeys(line.lstrip("+~").partition("=")[0].partition("/")[0] for line in overrides)
    read = (*_READS.get(mode, keys), *_ALWAYS)
    unread = [key for key in keys if not _below(key, read) or _below(key, _READS_NOT.get(mode, ()))]
    return [f"{', '.join(unread)} {_do(unread)} not apply to mode={mode.value}"] if unread else []


def _sentences(stated: Sequence[str], mode: ModeName) -> Iterator[str]:
    for part, reader in READERS.items():
        keys = [key for key in stated if _within(key, part)]
        if keys and reader is not mode:
            them = "it" if len(keys) == 1 else "them"
            yield f"{', '.join(keys)} {_do(keys)} not apply to mode={mode.value}: mode={reader.value} reads {them}"


def _within(key: str, part: str) -> bool:
    return key == part or key.startswith(f"{part}.")


def _below(key: str, parts: Iterable[str]) -> bool:
    return any(_within(key, part) for part in parts)


def _do(keys: Sequence[str]) -> str:
    return "does" if len(keys) == 1 else "do"
