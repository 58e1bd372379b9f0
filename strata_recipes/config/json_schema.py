"""The schema as JSON Schema, for editors that complete and check YAML: one file a group, one for a whole config.

It knows types and words, not what contradicts what; the program's own check is the one that counts.
"""

from __future__ import annotations

from typing import Any

from strata_recipes.config.comments import said
from strata_recipes.config.leaves import Member, members
from strata_recipes.config.schema import Config

_NUMBER = r"[0-9][0-9_]*(\.[0-9_]*)?([eE][+-]?[0-9]+)?"
_UNIT = r"([KMGT]i?)?[Bb]?"
_PATTERNS = {"bytes": rf"^{_NUMBER} *{_UNIT}$", "rate": rf"^{_NUMBER} *{_UNIT}(/s)?$"}
_PLAIN = rf"^{_NUMBER}$"
Schema = dict[str, Any]


def schema_files() -> dict[str, Schema]:
    """By name: `config` for a whole config such as resolved.yaml, and each section for its own option files."""
    files = {"config": _file(Config)}
    return files | {name: _file(member.hint) for name, member in members(Config).items() if member.kind == "section"}


def _file(cls: type) -> Schema:
    """An object that may have a defaults list besides its keys, as files of Hydra's do."""
    found = _object(cls)
    found["properties"] = {"defaults": {"type": "array"}, "hydra": {"type": "object"}} | found["properties"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def _object(cls: type) -> Schema:
    about = said(cls)
    properties = {name: _described(_member(member), about.fields[name]) for name, member in members(cls).items()}
    return _described({"type": "object", "additionalProperties": False, "properties": properties}, about.text)


def _member(member: Member) -> Schema:
    if member.kind == "section":
        return _object(member.hint)
    choices = [_LEAVES.get(member.kind, _number)(member)]
    words = (["auto"] if member.metadata.get("auto") else []) + list(member.metadata.get("words", ()))
    choices += [{"enum": words}] if words else []
    choices += [{"type": "null"}] if member.optional else []
    choices.append({"type": "string", "pattern": r"\$\{"})  # an interpolation
    return {"anyOf": choices}


def _number(member: Member) -> Schema:
    """A number within its bounds, or text that reads as one."""
    bounds: Schema = {"minimum": member.metadata.get("low", 0)} | ({"maximum": 1} if member.kind == "share" else {})
    text = {"type": "string", "pattern": _PATTERNS.get(member.kind, _PLAIN)}
    return {"anyOf": [{"type": "number", **bounds}, text]}


def _list(member: Member) -> Schema:
    return {"type": "array", "items": _member(member.element)}


_LEAVES: dict[str, Any] = {
    "text": lambda member: {"type": "string"},
    "bool": lambda member: {"anyOf": [{"type": "boolean"}, {"enum": ["true", "false", "yes", "no", "on", "off"]}]},
    "enum": lambda member: {"enum": list(member.hint.__members__)},
    "list": _list,
    "map": lambda member: {"type": "object", "additionalProperties": _member(member.element)},
}


def _described(schema: Schema, text: str) -> Schema:
    return {**schema, "description": text} if text else schema
