"""The schema as data: its members, its dotted leaves, its defaults. Does not know values or Hydra."""

from __future__ import annotations

import dataclasses
import functools
import operator
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Union


@dataclass(frozen=True)
class Member:
    """One field of a schema class: its type without `| None`, whether null is allowed, what its text means."""

    hint: Any
    optional: bool
    metadata: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """bytes, rate, count, number, share where the field says so; else section, list, map, enum, bool or text by its type."""
        if "kind" in self.metadata:
            return str(self.metadata["kind"])
        if dataclasses.is_dataclass(self.hint):
            return "section"
        if typing.get_origin(self.hint) in (list, dict):
            return "list" if typing.get_origin(self.hint) is list else "map"
        if isinstance(self.hint, type) and issubclass(self.hint, Enum):
            return "enum"
        return {bool: "bool", str: "text", int: "count", float: "number"}[self.hint]

    @property
    def element(self) -> Member:
        """What a list holds, or a map under any name."""
        return Member(typing.get_args(self.hint)[-1], False, {})


class Leaf(NamedTuple):
    """A dotted key of the schema that holds a value: text, number, choice or list."""

    key: str
    metadata: Mapping[str, Any]
    type: Any


@functools.cache
def members(cls: type) -> dict[str, Member]:
    """The fields of a schema class by name, in order."""
    hints = typing.get_type_hints(cls)
    return {f.name: _member(hints[f.name], f.metadata) for f in dataclasses.fields(cls)}


def leaves(cls: type) -> list[Leaf]:
    """Every leaf below a schema class, depth first in schema order; a list is one leaf."""
    found: list[Leaf] = []
    for name, member in members(cls).items():
        if member.kind == "section":
            found += [Leaf(f"{name}.{leaf.key}", leaf.metadata, leaf.type) for leaf in leaves(member.hint)]
        else:
            found.append(Leaf(name, member.metadata, typing.get_type_hints(cls)[name]))
    return found


def plain(value: Any) -> Any:
    """A schema value as dicts, lists, numbers and text; an enum by its name."""
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value.name if isinstance(value, Enum) else value


def defaults(cls: type) -> dict[str, Any]:
    """The schema's own defaults as plain data."""
    return dict(plain(cls()))


def _member(hint: Any, metadata: Mapping[str, Any]) -> Member:
    optional = typing.get_origin(hint) in (Union, types.UnionType) and type(None) in typing.get_args(hint)
    if not optional:
        return Member(hint, False, metadata)
    rest = [arg for arg in typing.get_args(hint) if arg is not type(None)]
    return Member(rest[0] if len(rest) == 1 else functools.reduce(operator.or_, rest), True, metadata)
