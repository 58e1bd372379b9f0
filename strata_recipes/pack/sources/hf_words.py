"""Tokenizer, chat template and end-of-text ids of a Hugging Face folder. Parses no vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strata_recipes.errors import PackError
from strata_recipes.pack.input_file import InputFile
from strata_recipes.pack.sources.hf_shards import read_json

WORD_FILES = ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json")
_MAX_TEXT_BYTES = 64 << 20


def tokenizer_text(folder: Path) -> str | None:
    """tokenizer.json as it is; None where the folder has none."""
    return _text(folder / "tokenizer.json")


def chat_template(folder: Path) -> str | None:
    """The template from its own file, or from the tokenizer's config (of several, the one named `default`)."""
    own = _text(folder / "chat_template.jinja")
    if own is not None:
        return own
    for name in ("chat_template.json", "tokenizer_config.json"):
        if (folder / name).exists():
            found = _default(read_json(folder / name).get("chat_template"))
            if found is not None:
                return found
    return None


def stated_eos(folder: Path, config: dict[str, Any]) -> list[Any]:
    """Every `eos_token_id` of the folder, ids and lists of ids."""
    path = folder / "generation_config.json"
    text = config.get("text_config")
    sources = [read_json(path) if path.exists() else {}, config, text if isinstance(text, dict) else {}]
    return [source.get("eos_token_id") for source in sources]


def _default(template: Any) -> str | None:
    if isinstance(template, list):
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _text(path: Path) -> str | None:
    if not path.exists():
        return None
    with InputFile(path) as file:
        if file.size > _MAX_TEXT_BYTES:
            raise PackError(f"{path} has {file.size:,} bytes, at most {_MAX_TEXT_BYTES:,} are read")
        try:
            return file.read(0, file.size).decode("utf-8")
        except UnicodeDecodeError:
            raise PackError(f"{path} is damaged: it is not UTF-8 text") from None
