"""Overrides below a map of the schema, as bench.arms.NAME=[startup=mapped], written so that Hydra takes them. Text in, text out."""

from __future__ import annotations

from collections.abc import Iterator

from hydra.core.override_parser.types import Quote, QuotedString

from strata_recipes.config.names import find

ADDED = "++"  # Hydra's word for a key that may not be there yet
_CLOSING = {"[": "]", "{": "}", "(": ")"}


def in_map(key: str) -> bool:
    """Whether a dotted key is an entry of a map."""
    parent = find(key.rpartition(".")[0]) if "." in key else None
    return parent is not None and parent.kind == "map"


def map_line(line: str) -> str:
    """The override with each item of its list in quotes where it is an entry of a map of lists; any other as it is."""
    key, equals, value = line.lstrip("+").partition("=")
    member = find(key) if equals and in_map(key) else None
    value = value.strip()
    if member is None or member.kind != "list" or value[:1] + value[-1:] != "[]":
        return line
    return f"{ADDED}{key}=[{','.join(_quoted(item) for item in _items(value[1:-1]))}]"


def _items(text: str) -> Iterator[str]:
    """The text between commas that stand in no bracket and no quote."""
    waiting: list[str] = []
    item = ""
    for letter in text:
        if waiting and letter == waiting[-1]:
            waiting.pop()
        elif not waiting or waiting[-1] not in "'\"":
            if letter in "'\"":
                waiting.append(letter)
            elif letter in _CLOSING:
                waiting.append(_CLOSING[letter])
        if letter == "," and not waiting:
            yield item.strip()
            item = ""
        else:
            item += letter
    if item.strip():
        yield item.strip()


def _quoted(item: str) -> str:
    whole = len(item) > 1 and item[0] == item[-1] and item[0] in "'\""
    return item if whole else str(QuotedString(item, Quote.single).with_quotes())
