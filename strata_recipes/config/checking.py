"""Plain data against the schema: every unknown key and every wrong value is told, the rest becomes a Config.

Does not know where the data came from, and nothing about models or machines.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from strata_recipes.config.leaves import Member, members
from strata_recipes.config.names import nearest, unknown_key
from strata_recipes.units import parse_bytes, parse_number, parse_rate

BROKEN = object()  # stands for a value whose fault is already told
LARGEST = 2**63 - 1
_WANTED = {
    "bytes": "a size such as 6GiB, 6 GB or 6_000",
    "rate": "a rate such as 1.6GB/s",
    "count": "a whole number such as 6_000",
    "number": "a number such as 0.5",
    "share": "a share from 0 to 1",
    "bool": "true or false",
    "text": "text, in quotes where it looks like a number, true, false or null",
}
_SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def read_section(cls: type, data: Any, key: str, faults: list[str]) -> Any:
    """A schema class from a dict; faults are appended, and what they spoil keeps its default."""
    if not isinstance(data, dict):
        faults.append(_no_section(cls, data, key))
        return cls()
    known = members(cls)
    faults += [unknown_key(_join(key, str(name))) for name in data if name not in known]
    given = {name: value for name, value in data.items() if name in known and value is not BROKEN}
    values = {name: read_value(known[name], value, _join(key, name), faults) for name, value in given.items()}
    return cls(**{name: value for name, value in values.items() if value is not BROKEN})


def read_value(member: Member, value: Any, key: str, faults: list[str]) -> Any:
    """One member's value in the schema's own type, or BROKEN and a fault that names key, value and what is wanted."""
    if member.kind == "section":
        return read_section(member.hint, value, key, faults)
    if value is None and member.optional:
        return None
    if member.kind == "list":
        return _read_list(member, value, key, faults)
    if member.kind == "map":
        return _read_map(member, value, key, faults)
    try:
        return _read_leaf(member, value)
    except ValueError as why:
        faults.append(f"{key}: {why}, wanted is {wanted(member)}")
        return BROKEN


def wanted(member: Member) -> str:
    """What a leaf takes, for a fault's remedy."""
    text = f"one of {', '.join(member.hint.__members__)}" if member.kind == "enum" else _WANTED[member.kind]
    low = member.metadata.get("low", 0)
    text += f" and at least {low}" if low else ""
    text += "".join(f", or {word}" for word in _words(member))
    return text + (", or null" if member.optional else "")


def _read_leaf(member: Member, value: Any) -> Any:
    if value is None:
        raise ValueError("null stands for not stated, which this key does not allow")
    if isinstance(value, dict | list):
        raise ValueError("a single value belongs here, not a list or a section")
    if value in _words(member):
        return value
    return _READERS[member.kind](member, value)


def _words(member: Member) -> tuple[str, ...]:
    auto = ("auto",) if member.metadata.get("auto") else ()
    return (*auto, *member.metadata.get("words", ()))


def _read_list(member: Member, value: Any, key: str, faults: list[str]) -> Any:
    if not isinstance(value, list):
        faults.append(f"{key}: {value!r} is not a list, wanted is [a, b, ...]")
        return BROKEN
    items = [read_value(member.element, item, f"{key}.{at}", faults) for at, item in enumerate(value) if item is not BROKEN]
    return [item for item in items if item is not BROKEN]


def _read_map(member: Member, value: Any, key: str, faults: list[str]) -> Any:
    if not isinstance(value, dict):
        faults.append(f"{key}: {value!r} has no names, wanted is {key}.NAME=...")
        return BROKEN
    items = {str(name): read_value(member.element, item, f"{key}.{name}", faults) for name, item in value.items() if item is not BROKEN}
    return {name: item for name, item in items.items() if item is not BROKEN}


def _read_text(member: Member, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError(f"{value!r} is not UTF-8")
    if value == "???":
        raise ValueError("'???' is Hydra's word for a value that is missing")
    return value


def _read_bool(member: Member, value: Any) -> bool:
    found = value if isinstance(value, bool) else _SWITCH.get(str(value).lower())
    if found is None:
        raise ValueError(f"{value!r} is neither true nor false")
    return found


def _read_enum(member: Member, value: Any) -> Enum:
    choices = member.hint.__members__
    if value not in choices:
        raise ValueError(f"{value!r} is none of its words, {nearest(str(value), choices)}")
    choice: Enum = choices[value]
    return choice


def _read_bytes(member: Member, value: Any) -> int:
    return int(_in_range(member, value, parse_bytes(value)))


def _read_count(member: Member, value: Any) -> int:
    number = parse_number(value)
    if number != int(number):
        raise ValueError(f"{value!r} is not whole")
    return int(_in_range(member, value, int(number)))


def _read_number(member: Member, value: Any) -> float:
    return float(_in_range(member, value, parse_number(value)))


def _read_rate(member: Member, value: Any) -> float:
    return float(_in_range(member, value, parse_rate(value)))


def _read_share(member: Member, value: Any) -> float:
    share = _read_number(member, value)
    if share > 1:
        raise ValueError(f"{value!r} is more than 1")
    return share


def _in_range(member: Member, value: Any, number: Any) -> Any:
    low = member.metadata.get("low", 0)
    if number < low:
        raise ValueError(f"{value!r} is below {low}")
    if isinstance(number, int) and number > LARGEST:
        raise ValueError(f"{value!r} is above 2**63 - 1")
    return number


_READERS = {
    "text": _read_text,
    "bool": _read_bool,
    "enum": _read_enum,
    "bytes": _read_bytes,
    "count": _read_count,
    "number": _read_number,
    "rate": _read_rate,
    "share": _read_share,
}


def _no_section(cls: type, data: Any, key: str) -> str:
    inside = ", ".join(members(cls))
    if data is None:
        return f"{key} is null: leave it out, name one of its options, or state its keys ({inside})"
    return f"{key}: {data!r} is a single value, wanted are its keys ({inside})"


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
