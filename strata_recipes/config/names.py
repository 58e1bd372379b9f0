"""Finding a dotted key in the schema, and the nearest known name for one that is not there. Does not know values."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from strata_recipes.config.leaves import Member, leaves, members
from strata_recipes.config.schema import Config

ROOT = Member(Config, False, {})
NO_GROUPS = ("results", "bench", "verify", "result", "sweep", "calibrate", "profile")  # members without a folder of options
RECIPE = "recipe"
GROUPS = (*(name for name in members(Config) if name not in NO_GROUPS), RECIPE)


def find(key: str) -> Member | None:
    """The member at a dotted key such as hardware.gpu.vram or model.experts.0.gate; None where there is none."""
    at = ROOT
    for name in key.split("."):
        if at.kind == "section" and name in members(at.hint):
            at = members(at.hint)[name]
        elif at.kind == "map" or (at.kind == "list" and name.isdigit()):
            at = at.element
        else:
            return None
    return at


def unknown_key(key: str) -> str:
    """The fault of a key that the schema does not have, with the nearest one that it has."""
    parent, name = _split_at_fault(key)
    section = find(parent) if parent else ROOT
    if section is None or section.kind != "section":
        return f"{key}: there is no such key, {parent} is a value and has none below it"
    known = [*members(section.hint), *(() if parent else (RECIPE, "hydra"))]
    return f"{key}: there is no such key, {_suggest(name, known, f'{parent}.' if parent else '')}"


def nearest(name: str, known: Iterable[str]) -> str:
    """`nearest of a, b, c is b`; where nothing is near, `known are a, b, c`."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"nearest of {', '.join(names)} is {close[0]}" if close else f"known are {', '.join(names)}"


def _split_at_fault(key: str) -> tuple[str, str]:
    parts = key.split(".")
    good = next(n for n in range(len(parts)) if find(".".join(parts[: n + 1])) is None)
    return ".".join(parts[:good]), parts[good]


def _suggest(name: str, known: list[str], prefix: str) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    elsewhere = [leaf.key for leaf in leaves(Config) if leaf.key.rpartition(".")[2] == name]
    if close or elsewhere:
        return f"nearest is {prefix + close[0] if close else elsewhere[0]}"
    return f"known here are {', '.join(known)}"
