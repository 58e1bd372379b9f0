"""The reply as it is written: shown at once, kept for the record. Does not know how tokens are chosen."""

from __future__ import annotations

import json
from typing import TextIO

from strata_recipes.modes.clock import Clock
from strata_recipes.modes.interrupt import raise_if_interrupted
from strata_recipes.text.stream import TextStream
from strata_recipes.text.tokenizer import Tokenizer


class Reply:
    """Tokens in, whole characters out. Without a tokenizer the ids themselves are shown."""

    def __init__(self, tokenizer: Tokenizer | None, out: TextIO, clock: Clock) -> None:
        self.tokens: list[int] = []
        self.first_token_s: float | None = None
        self._text = ""
        self._stream = None if tokenizer is None else TextStream(tokenizer.token_bytes)
        self._out = out
        self._clock = clock

    def push(self, token: int) -> None:
        """One more token; KeyboardInterrupt where the user asked to stop."""
        raise_if_interrupted()
        if self.first_token_s is None:
            self.first_token_s = self._clock.seconds()
        self.tokens.append(token)
        self._show(self._stream.push(token) if self._stream else f"{token} ")

    def end(self) -> None:
        """No more tokens: what was held back is shown."""
        if self._stream:
            self._show(self._stream.flush())
        self._show("\n", keep=False)

    def to_json(self) -> str:
        """Ids and text, null where there is no tokenizer."""
        found = {"tokens": self.tokens, "text": self._text if self._stream else None}
        return json.dumps(found, ensure_ascii=False) + "\n"

    def _show(self, piece: str, keep: bool = True) -> None:
        if keep:
            self._text += piece
        self._out.write(piece)
        self._out.flush()
