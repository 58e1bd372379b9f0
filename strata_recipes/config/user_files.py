"""Config files of the user's own folder, read once before Hydra reads them: what Hydra would pass over or choke on.

Looks at form only (UTF-8, YAML, a mapping, words of the defaults list); keys and values are checked after composing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from omegaconf._utils import get_yaml_loader

from strata_recipes.config.names import GROUPS, nearest

_WORDS = ("override", "optional")
_MOST_DEPTH = 50
_OPENING = (yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken, yaml.BlockSequenceStartToken, yaml.BlockMappingStartToken)
_CLOSING = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)


def file_faults(folder: Path, config_name: str, overrides: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Files that Hydra would choke on, and words that it would pass over.

    Read are the primary config and the group options that it and the overrides name, as far as they lie in `folder`.
    """
    unreadable: list[str] = []
    misspelt: list[str] = []
    waiting = [config_name, *(line.replace("=", "/", 1) for line in overrides if line.partition("=")[0] in GROUPS)]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop().removesuffix(".yaml").lstrip("/")
        path = folder / f"{name}.yaml"
        if name in seen or not path.is_file():
            continue
        seen.add(name)
        for entry in _defaults(path, unreadable):
            waiting += _follow(entry, name.rpartition("/")[0], str(path), misspelt)
    return unreadable, misspelt


def _defaults(path: Path, faults: list[str]) -> list[Any]:
    """The file's defaults list; [] where it has none or cannot be read, which is then told."""
    try:
        text = path.read_text(encoding="utf-8")
        _refuse_depth(text)
        data = yaml.load(text, Loader=get_yaml_loader())
    except UnicodeDecodeError as error:
        faults.append(f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8")
        return []
    except OSError as error:
        faults.append(f"{path} cannot be read ({error.strerror}): mend its permissions")
        return []
    except yaml.YAMLError as error:
        faults.append(yaml_fault(error, str(path)))
        return []
    if data is not None and not isinstance(data, dict):
        what = "a list" if isinstance(data, list) else "a single value"
        faults.append(f"{path} holds {what}, not keys with values: write for example `prefill: {{chunk: 64}}`")
        return []
    entries = (data or {}).get("defaults", [])
    return entries if isinstance(entries, list) else []


def _refuse_depth(text: str) -> None:
    """YAMLError for nesting that no config has: the parser's time grows with its square, and Python's stack ends at a thousand."""
    depth = 0
    for token in yaml.scan(text):
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > _MOST_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested more than {_MOST_DEPTH} deep", problem_mark=token.start_mark)


def _follow(entry: Any, group: str, path: str, faults: list[str]) -> Iterator[str]:
    """The files that an entry of a defaults list names, relative to the folder; a misspelt word is told."""
    if isinstance(entry, str):
        yield f"{group}/{entry}"
    for key, option in entry.items() if isinstance(entry, dict) else ():
        *words, name = str(key).split(" ")
        faults += [f"{path}: {word!r} in the defaults list, {nearest(word, _WORDS)}" for word in words if word not in _WORDS]
        yield from (f"{name}/{item}" for item in (option if isinstance(option, list) else [option]))


def yaml_fault(error: yaml.YAMLError, path: str) -> str:
    """A YAML syntax error as one sentence with its place."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{path} is not YAML: {error.problem} in line {mark.line + 1}, column {mark.column + 1}"
    return f"{path} is not YAML: {' '.join(str(error).split())}"
