"""What a leaf of the schema may hold, and what its text means.

A leaf's metadata says what its text means: `kind` is bytes, rate, count, number, share, bool or text; `auto` that the word
"auto" is allowed, `words` which others are, `low` the smallest value. Sizes and rates are text or numbers on the way in
and numbers afterwards.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what every reader sees, after compose has turned text into numbers
    Bytes = int
    Rate = float
    Number = float
    AutoCount = int | str
    AutoBytes = int | str
    AutoBool = bool | str
else:  # what OmegaConf accepts on the way in
    Bytes = Rate = Number = AutoCount = AutoBytes = int | float | str
    AutoBool = bool | str


def leaf(kind: str, default: Any = None, *, auto: bool = False, words: tuple[str, ...] = (), low: float = 0) -> Any:
    """A field of the schema with its meaning; `None` as default stands for not stated."""
    return field(default=default, metadata={"kind": kind, "auto": auto, "words": words, "low": low})
