"""Messages say the config's words: no message, note or reason shows the name of a class that holds them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from strata_recipes.config import choices
from strata_recipes.config.compose import compose_config, leaves
from strata_recipes.config.leaves import members
from strata_recipes.config.names import find
from strata_recipes.config.rules import contradictions
from strata_recipes.config.schema import Config
from strata_recipes.errors import ConfigError, StrataError
from strata_recipes.modes.models import model_facts
from strata_recipes.modes.prepare import prepare

ENUMS = [kind for _, kind in inspect.getmembers(choices, inspect.isclass) if issubclass(kind, Enum) and list(kind)]
CLASS = re.compile(rf"\b({'|'.join(kind.__name__ for kind in ENUMS)})\.\w|<\w+\.\w+:|\bchoices\.|is no [A-Z][a-z]+[A-Z]?[a-z]*\b")
CHOSEN = [leaf.key for leaf in leaves(Config) if (member := find(leaf.key)) is not None and member.kind == "enum"]
BASES = {
    "a card": ["hardware=rtx3060_6gb"],
    "no card": ["hardware=cpu"],
    "chunked, sampled": ["hardware=h200", "prefill=chunked", "decode=sample"],
}


def test_a_word_prints_as_itself() -> None:
    assert len(ENUMS) > 15
    for kind in ENUMS:
        for word in kind:
            assert f"{word}" == f"{word:>1}" == str(word) == word.name == word.value


def test_what_would_print_a_class_is_found() -> None:
    for text in ("prefill.dense=Dense.auto", "<Order.auto: 'auto'>", "'x' is no Strategy, nearest", "choices.Dense.auto"):
        assert CLASS.search(text)
    assert not CLASS.search("decode.draft=mtp is not built: use none. There is no GPU, Order. Next")


@pytest.mark.parametrize("key", CHOSEN)
def test_a_wrong_word_is_told_without_its_class(key: str) -> None:
    with pytest.raises(ConfigError) as told:
        compose_config([f"{key}=nonsense"])
    (fault,) = told.value.faults
    assert fault.startswith(f"{key}: 'nonsense' is none of its words, ") and not CLASS.search(fault)


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_no_fault_note_or_reason_names_a_class(base: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every word of every choice in turn, alone and beside what does not go with it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = compose_config(["model=qwen38_flash_next_q2_0", "workload=prompt_2k", *base])
    others = [
        changed for key in CHOSEN for changed in _each_word(config, key) if changed != config
    ]  # each choice has the config's own word
    said = [text for turned in [config, *others] for text in _said(turned)]
    assert len(said) > 100 and [text for text in said if CLASS.search(text)] == []


def _each_word(config: Config, key: str) -> Iterator[Config]:
    section, name = key.rsplit(".", 1) if "." in key else ("", key)
    part = getattr(config, section)
    for word in members(type(part))[name].hint:
        yield replace(config, **{section: replace(part, **{name: word})})


def _said(config: Config) -> list[str]:
    said: list[Any] = contradictions(config)
    try:
        with model_facts(config.model) as facts:
            plan = prepare(config, facts).plan
        said += [*plan.notes, *(f"{decision.value} {decision.because}" for decision in plan.decisions)]
    except StrataError as error:
        said.append(str(error))
    return said
