"""The prompt of a run: the workload's first stated source, as token ids. Knows of the model only what `PromptFacts` names."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strata_recipes.config.choices import Template
from strata_recipes.config.schema import Workload
from strata_recipes.errors import ConfigError, PackError
from strata_recipes.plan.workload import SOURCES, stated_sources
from strata_recipes.text.synthetic import synthetic_ids
from strata_recipes.text.token_file import read_ids
from strata_recipes.text.tokenizer import Tokenizer
from strata_recipes.text.written import PromptFacts, encode_written


@dataclass(frozen=True, eq=False)
class Prompt:
    """Token ids int32 [tokens], the text behind them where there is one, and where they came from."""

    ids: np.ndarray
    text: str | None
    source: str
    notes: tuple[str, ...] = ()


def stated_source(workload: Workload) -> str:
    """The source that wins; ConfigError where none is stated."""
    stated = stated_sources(workload)
    if not stated:
        raise ConfigError(f"workload states no prompt: set one of workload.{', workload.'.join(SOURCES)}")
    return stated[0]


def prompt_length(workload: Workload) -> int | None:
    """Tokens of the prompt as far as no tokenizer is needed: exact for a token file and a synthetic prompt, else None."""
    source = stated_source(workload)
    if source == "token_ids_file":
        return len(read_ids(workload.token_ids_file or ""))
    return _wanted_tokens(workload) if source == "tokens" else None


def prompt_ids(workload: Workload, facts: PromptFacts, file_key: str = "workload.text_file") -> Prompt:
    """The prompt's ids; every fault of the source is refused here, before the model runs. `file_key`: what names a text file."""
    source, vocab = stated_source(workload), facts.index.geometry.vocab
    notes = _notes(workload, source)
    if source == "token_ids_file":
        return Prompt(read_ids(workload.token_ids_file or "", vocab), None, source, notes)
    if source == "tokens":
        avoid = {*facts.eos_token_ids, *_control_ids(facts)} & set(range(vocab))
        return Prompt(synthetic_ids(_wanted_tokens(workload), workload.seed or 0, vocab, avoid), None, source, notes)
    ids, text = encode_written(workload, source, facts, file_key)
    if not ids:
        where = f"{workload.text_file} ({file_key})" if source == "text_file" else f"workload.{source}"
        raise ConfigError(f"{where} is empty: 0 tokens leave nothing to continue, state a text or use workload.tokens=N")
    if max(ids) >= vocab:
        raise PackError(
            f"the tokenizer gives id {max(ids)}, the model's vocabulary has {vocab} tokens: tokenizer and weights do not belong together"
        )
    return Prompt(np.asarray(ids, np.int32), text, source, notes)


def _notes(workload: Workload, source: str) -> tuple[str, ...]:
    notes = [f"workload.{name} is not used: workload.{source} comes first" for name in stated_sources(workload)[1:]]
    if source in ("token_ids_file", "tokens") and workload.template is Template.chat:
        notes.append(f"workload.template=chat is not used: workload.{source} gives token ids")
    if source != "tokens" and workload.seed is not None:
        notes.append(f"workload.seed is not used: it belongs to workload.tokens, the prompt is workload.{source}")
    return tuple(notes)


def _wanted_tokens(workload: Workload) -> int:
    if not workload.tokens:
        raise ConfigError("workload.tokens is 0: an empty prompt leaves nothing to continue, use 1 or more")
    return workload.tokens


def _control_ids(facts: PromptFacts) -> frozenset[int]:
    return frozenset() if facts.tokenizer_path is None else Tokenizer(facts.tokenizer_path).control_ids
