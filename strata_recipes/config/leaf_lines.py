"""What one config says and another does not, as overrides of single leaves, which a replay takes too. Composes nothing."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString

from strata_recipes.config.leaves import leaves, plain
from strata_recipes.config.schema import Config

_INTERPOLATION = re.compile(r"(\\*)\$\{")


def leaf_lines(config: Config, base: Config, without: Collection[str] = ()) -> list[str]:
    """`key=value` for every leaf of `config` that differs from `base`; leaves of the sections in `without` are left out."""
    keys = [leaf.key for leaf in leaves(Config) if leaf.key.partition(".")[0] not in without]
    found, before = plain(config), plain(base)
    return [leaf_line(key, value_at(found, key)) for key in keys if value_at(found, key) != value_at(before, key)]


def leaf_line(key: str, value: Any) -> str:
    """One override in Hydra's grammar that gives the key this very value."""
    return f"{key}={_written(value)}"


def value_at(data: Any, key: str) -> Any:
    """The value at a dotted key of plain data."""
    for name in key.split("."):
        data = data[name]
    return data


def _written(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return f"[{','.join(_written(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{_written(item)}" for name, item in value.items()) + "}"
    return repr(value)


def _text(value: str) -> str:
    if re.fullmatch(r"[a-z][a-z0-9_]*", value) and value not in ("true", "false", "null", "nan", "inf"):
        return value
    literal = _INTERPOLATION.sub(lambda match: match[1] * 2 + r"\${", value)
    return str(QuotedString(literal, Quote.single).with_quotes())
