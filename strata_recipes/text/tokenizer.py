"""Text to token ids and token ids to bytes, from a tokenizer.json. Does not know chats, prompts or where the file came from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tokenizers

from strata_recipes.errors import FileError, PackError
from strata_recipes.text.byte_alphabet import token_text_bytes


class Tokenizer:
    """A byte-level BPE tokenizer. Text of a user never yields a control token; only `encode_template` makes those."""

    def __init__(self, path: Path) -> None:
        self._plain = _loaded(path)
        self._plain.no_truncation()
        self._plain.no_padding()
        added = self._plain.get_added_tokens_decoder()
        self._added = {number: token.content for number, token in added.items()}
        self.control = {token.content: number for number, token in added.items() if token.special}
        self.control_ids = frozenset(self.control.values())
        self.prefix_ids = self._prefix()
        self._plain.encode_special_tokens = True  # from here on, control strings in a text are ordinary text
        self._controls_pattern = _alternatives([token for token in added.values() if token.special])

    @property
    def vocab_size(self) -> int:
        """One more than the highest id."""
        return max(self._plain.get_vocab(with_added_tokens=True).values()) + 1

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without the prefix (BOS); never a control id."""
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        bad = self.control_ids.intersection(ids)
        if bad:
            raise PackError(
                f"tokenizer.json makes control token {self.token_text(min(bad))!r} out of ordinary text: it is not byte-level BPE"
            )
        return ids

    def encode_template(self, text: str, mark: str) -> list[int]:
        """Ids of a rendered template: its control strings become control ids, but not those after a `mark` (see chat.py)."""
        ids: list[int] = []
        at = 0
        for match in self._controls(text, mark):
            ids += self.encode(text[at : match.start()].replace(mark, ""))
            ids.append(self.control[match[match.lastindex or 0]])
            at = match.end()
        return ids + self.encode(text[at:].replace(mark, ""))

    def token_bytes(self, number: int) -> bytes:
        """What a token adds to the text; b"" for a control token. An id past the vocabulary has no text."""
        if number in self.control_ids:
            return b""
        if number in self._added:
            return self._added[number].encode()
        token = self._plain.id_to_token(number)
        return b"" if token is None else token_text_bytes(token)

    def token_text(self, number: int) -> str:
        """A token's own string as the vocabulary spells it, for messages and templates."""
        return str(self._plain.id_to_token(number) or "")

    def _controls(self, text: str, mark: str) -> Iterator[re.Match[str]]:
        if not self.control:
            return iter(())
        return re.finditer(f"(?<!{re.escape(mark)}){self._controls_pattern}", text)

    def _prefix(self) -> tuple[int, ...]:
        """The ids that this tokenizer puts before every text (BOS)."""
        bare = self._plain.encode("a", add_special_tokens=False).ids
        whole = self._plain.encode("a", add_special_tokens=True).ids
        start = next((i for i in range(len(whole)) if whole[i : i + len(bare)] == bare), 0)
        return tuple(whole[:start])


def _loaded(path: Path) -> tokenizers.Tokenizer:
    text = _checked(path)
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises this very class, whatever the fault
        raise PackError(f"{path.name} is damaged, the tokenizers library says {error}: build the pack again with mode=pack") from error


def _checked(path: Path) -> str:
    """The file's text, known to be a byte-level BPE tokenizer."""
    try:
        text = path.read_bytes().decode("utf-8")
        facts = json.loads(text)
    except OSError as error:
        raise FileError(
            f"{path.name} cannot be read ({error.strerror}, errno {error.errno}): build the pack again with mode=pack"
        ) from error
    except RecursionError:
        raise PackError(f"{path.name} is damaged, nested too deeply: build the pack again with mode=pack") from None
    except ValueError as error:
        raise PackError(f"{path.name} is not valid JSON in UTF-8 ({error}): build the pack again with mode=pack") from error
    model = facts.get("model") if isinstance(facts, dict) else None
    kind = model.get("type", "BPE" if "merges" in model else None) if isinstance(model, dict) else None
    if kind != "BPE" or not _byte_level(facts.get("decoder")):
        raise PackError(f"{path.name} holds a tokenizer of type {kind}, this build reads byte-level BPE: take a model with that tokenizer")
    return text


def _byte_level(decoder: Any) -> bool:
    if not isinstance(decoder, dict):
        return False
    return decoder.get("type") == "ByteLevel" or any(_byte_level(part) for part in decoder.get("decoders", ()))


def _alternatives(tokens: list[tokenizers.AddedToken]) -> str:
    """Matches any control string, longest first, each its own group, with the white space that the token swallows."""
    ordered = sorted(tokens, key=lambda token: (-len(token.content), token.content))
    parts = [r"\s*" * token.lstrip + f"({re.escape(token.content)})" + r"\s*" * token.rstrip for token in ordered]
    return f"(?:{'|'.join(parts)})"
