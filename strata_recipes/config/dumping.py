"""A Config as text: resolved.yaml, which replays by itself, and the hash that names a run's folder. Writes no file."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import yaml

from strata_recipes.config.leaves import plain
from strata_recipes.config.places import SCHEMA_NAME
from strata_recipes.config.restated import probed_key
from strata_recipes.config.schema import Config
from strata_recipes.machine.facts import DEVICE

_HEAD = f"""\
# Every value of one run, literal. It replays by itself, checked as ever; key=value overrides it, groups do not:
#   strata --config-dir FOLDER --config-name resolved
defaults:
  - {SCHEMA_NAME}
  - results
  - _self_
"""
_INTERPOLATION = re.compile(r"(\\*)\$\{")
_WORD = re.compile(r"[a-z][a-z0-9_]*\Z")
_NOT_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


class _Dumper(yaml.SafeDumper):
    """Text in double quotes but for plain words, so that no reader takes 1e5, 6_000, 12:30 or null for anything else."""

    def represent_text(self, text: str) -> yaml.Node:
        bare = _WORD.match(text) and text not in _NOT_WORDS
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=None if bare else '"')


_Dumper.add_representer(str, _Dumper.represent_text)


def resolved_yaml(config: Config) -> str:
    """The whole config as YAML text (to be stored as UTF-8) that composes to an equal Config."""
    return data_yaml(plain(config))


def data_yaml(config: dict[str, Any]) -> str:
    """The same of a config as plain data, perhaps of another build's schema."""
    data = _escaped(config)
    return _HEAD + yaml.dump(data, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=10_000)


def config_hash(config: Config) -> str:
    """8 hex digits over what was asked for: without the results' place and the sweep, and with what was probed as not stated.

    So a resolved config, its replay and what was asked for at first have one hash.
    """
    data: dict[str, Any] = plain(config)
    del data["results"]["root"], data["results"]["folder"], data["sweep"]
    for key in data["hardware"].pop("probed"):
        _forget(data, probed_key(key).split("."), "auto" if key == DEVICE else None)
    gpu = data["hardware"]["gpu"]
    if gpu["free"] == gpu["vram"]:  # as the probe fills it in for a stated card
        gpu["free"] = None
    text = json.dumps(data, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _escaped(data: Any) -> Any:
    """Text that looks like an interpolation, written so that OmegaConf reads it as text."""
    if isinstance(data, dict):
        return {name: _escaped(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_escaped(value) for value in data]
    if isinstance(data, str):
        return _INTERPOLATION.sub(lambda match: match[1] * 2 + r"\${", data)
    return data


def _forget(data: dict[str, Any], path: list[str], unstated: str | None) -> None:
    *sections, name = path
    for section in sections:
        data = data[section]
    data[name] = unstated
