"""Tokens to text as they come: only whole characters are shown. Does not know prompts or when a run stops."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable


class TextStream:
    """Joined, the pieces are the bytes of all tokens read as UTF-8, bad bytes as U+FFFD."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that is whole with this token; "" while a character is still open, and for control tokens."""
        return self._decoder.decode(self._token_bytes(token))

    def flush(self) -> str:
        """What is left at the end: U+FFFD for bytes that never became a character."""
        return self._decoder.decode(b"", final=True)


def decode(token_bytes: Callable[[int], bytes], tokens: Iterable[int]) -> str:
    """The text of all tokens at once."""
    return b"".join(map(token_bytes, tokens)).decode("utf-8", errors="replace")
