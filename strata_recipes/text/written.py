"""What a person wrote (a text, a file, messages) as token ids, in the model's chat template where wanted. Runs no model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from strata_recipes.config.choices import Template
from strata_recipes.config.schema import Workload
from strata_recipes.errors import ConfigError, FileError
from strata_recipes.pack.index import PackIndex
from strata_recipes.text import chat
from strata_recipes.text.tokenizer import Tokenizer
from strata_recipes.text.user_file import read_user_file

_BOM = b"\xef\xbb\xbf"


class PromptFacts(Protocol):
    """What a prompt needs of a pack."""

    @property
    def index(self) -> PackIndex: ...
    @property
    def tokenizer_path(self) -> Path | None: ...
    @property
    def chat_template(self) -> str | None: ...
    @property
    def eos_token_ids(self) -> Sequence[int]: ...


def encode_written(workload: Workload, source: str, facts: PromptFacts, file_key: str) -> tuple[list[int], str]:
    """Ids and text of workload.text, text_file or messages; no ids for an empty text, however a template would dress it."""
    messages = _messages(workload, source, file_key)
    for message in messages:
        _refuse_broken(message["role"] + message["content"], source)
    if facts.tokenizer_path is None:
        raise ConfigError(f"workload.{source} needs a tokenizer and the model has none: use workload.token_ids_file or workload=synthetic")
    tokenizer = Tokenizer(facts.tokenizer_path)
    if not _uses_chat(workload, source, facts):
        text = messages[0]["content"]
        ids = tokenizer.encode(text)
        return ([*tokenizer.prefix_ids, *ids] if ids else []), text
    if source != "messages" and not messages[0]["content"]:
        return [], ""
    template = facts.chat_template or ""
    rendered = chat.render(template, messages, tokenizer.control, _bos(tokenizer), _eos(tokenizer, facts))
    return _with_prefix(tokenizer.encode_template(rendered.marked, rendered.mark), tokenizer.prefix_ids), rendered.text


def _messages(workload: Workload, source: str, file_key: str) -> list[dict[str, str]]:
    if source == "messages":
        return [{"role": message.role, "content": message.content} for message in workload.messages]
    text = (workload.text or "") if source == "text" else _read_text(workload.text_file or "", file_key)
    return [{"role": "user", "content": text}]


def _uses_chat(workload: Workload, source: str, facts: PromptFacts) -> bool:
    if source == "messages" and workload.template is Template.none:
        raise ConfigError(
            "workload.messages needs a chat template and workload.template=none turns it off: use workload.text or workload.template=auto"
        )
    wanted = workload.template is Template.chat or source == "messages"
    if wanted and not facts.chat_template:
        raise ConfigError(
            f"workload.{source} is to be a chat and the model has no chat template: use workload.text with workload.template=none"
        )
    return wanted or (workload.template is Template.auto and bool(facts.chat_template))


def _with_prefix(ids: list[int], prefix: tuple[int, ...]) -> list[int]:
    """Exactly one prefix (BOS), whether the template writes it, the tokenizer adds it, or both."""
    rest = ids
    while prefix and tuple(rest[: len(prefix)]) == prefix:
        rest = rest[len(prefix) :]
    return [*prefix, *rest]


def _bos(tokenizer: Tokenizer) -> str:
    return "".join(map(tokenizer.token_text, tokenizer.prefix_ids))


def _eos(tokenizer: Tokenizer, facts: PromptFacts) -> str:
    return tokenizer.token_text(facts.eos_token_ids[0]) if facts.eos_token_ids else ""


def _read_text(path: str, key: str) -> str:
    data = read_user_file(path, key)
    start = len(_BOM) if data.startswith(_BOM) else 0
    try:
        return data[start:].decode("utf-8")
    except UnicodeDecodeError as error:
        at = start + error.start
        raise FileError(f"{path} ({key}) is not UTF-8: byte 0x{data[at]:02x} at offset {at} of {len(data)}, save it as UTF-8") from error


def _refuse_broken(text: str, source: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError(f"workload.{source} holds a broken character at position {error.start}: write it in UTF-8") from error
