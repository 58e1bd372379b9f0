"""The reply on its way out: whole characters as they come, the record in full."""

from __future__ import annotations

import io
import json

import pytest

from strata_recipes.modes.reply import Reply


class Fixed:
    """A clock that stands still, and a tokenizer whose token n is the byte n."""

    def seconds(self) -> float:
        return 1.5

    def token_bytes(self, number: int) -> bytes:
        return bytes([number])


def reply(tokens: list[int], tokenizer: Fixed | None) -> tuple[Reply, str]:
    out = io.StringIO()
    made = Reply(tokenizer, out, Fixed())  # type: ignore[arg-type]
    for token in tokens:
        made.push(token)
    made.end()
    return made, out.getvalue()


@pytest.mark.parametrize(
    ("tokens", "text"),
    [(list("one é".encode()), "one é"), (list("🐍".encode()), "🐍"), ([0x61, 0xF0, 0x9F], "a\ufffd"), ([], "")],
)
def test_text_is_shown_and_kept(tokens: list[int], text: str) -> None:
    made, shown = reply(tokens, Fixed())
    assert shown == text + "\n"
    assert json.loads(made.to_json()) == {"tokens": tokens, "text": text}
    assert made.first_token_s == (1.5 if tokens else None)


def test_without_a_tokenizer_the_ids_are_shown() -> None:
    made, shown = reply([7, 12], None)
    assert shown == "7 12 \n"
    assert json.loads(made.to_json()) == {"tokens": [7, 12], "text": None}
