"""Plain JSON to frozen dataclasses, every type checked: a damaged file ends in a PackError that names the field."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from typing import Any, TypeVar

from strata_recipes.errors import PackError

T = TypeVar("T")
_INT_LIMIT = 1 << 64


def parse_json(text: bytes, where: str) -> Any:
    """JSON without repeated keys, NaN or infinities; PackError says where it breaks."""
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
    except RecursionError:
        raise PackError(f"{where} is damaged: nested too deeply") from None
    except ValueError as error:  # JSON and UTF-8 errors both are
        raise PackError(f"{where} is damaged, not JSON: {error}") from None


def decode(kind: type[T], data: Any, where: str) -> T:
    """A dataclass from plain JSON; missing, unknown and wrongly typed fields are refused by name."""
    if not isinstance(data, dict):
        raise PackError(f"{where} is damaged: an object is wanted, not {_kind(data)}")
    hints: dict[str, Any] = _hints(kind)  # type: ignore[arg-type]
    missing, unknown = sorted(set(hints) - set(data)), sorted(set(data) - set(hints))
    if missing or unknown:
        fault = f"lacks {missing[0]!r}" if missing else f"has the unknown field {unknown[0][:80]!r}"
        raise PackError(f"{where} is damaged: it {fault}")
    return kind(**{name: _value(hint, data[name], f"{where}: {name}") for name, hint in hints.items()})


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    assert dataclasses.is_dataclass(kind), kind
    return typing.get_type_hints(kind)


def _value(hint: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _value(typing.get_args(hint)[0], value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise PackError(f"{where} is damaged: a list is wanted, not {_kind(value)}")
        item = typing.get_args(hint)[0]
        return tuple(_value(item, v, f"{where}[{i}]") for i, v in enumerate(value))
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast(type, hint), value, where)
    return _scalar(hint, value, where)


def _scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < _INT_LIMIT:
        value = float(value)
    good = isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    if not good or (hint is int and abs(value) >= _INT_LIMIT) or (hint is float and not math.isfinite(value)):
        raise PackError(f"{where} is damaged: {_kind(value)} where {hint.__name__} is wanted")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)[:80]!r} is there twice")
    return found


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not a number here")


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "a text", type(None): "null"}.get(type(value), repr(value)[:40])
