"""Streamed text against the whole, and against the `tokenizers` library's own decoder."""

from __future__ import annotations

import itertools

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from strata_recipes.text.stream import TextStream, decode


def pieces(parts: list[bytes]) -> list[str]:
    """Token i adds the bytes parts[i]."""
    stream = TextStream(parts.__getitem__)
    return [*(stream.push(number) for number in range(len(parts))), stream.flush()]


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ([b"\xf0", b"\x9f", b"\x91", b"\x8d"], ["", "", "", "\U0001f44d", ""]),
        ([b"a\xf0\x9f"], ["a", "\ufffd"]),  # cut by max_new after two bytes
        ([b"\xff"], ["\ufffd", ""]),
        ([b"ok\xff", b"ok"], ["ok\ufffd", "ok", ""]),
        ([b"e", b"\xcc\x81"], ["e", "\u0301", ""]),  # a combining mark after its base
        ([b"\xe4\xb8", b"x"], ["", "\ufffdx", ""]),  # cannot become whole: flushed as soon as that is known
        ([b"\xe4\xb8", b"", b"\xad"], ["", "", "\u4e2d", ""]),  # a control token in between adds nothing
        ([b"\xc0\x80"], ["\ufffd\ufffd", ""]),  # an overlong zero
        ([b"\xed\xa0\x80"], ["\ufffd\ufffd\ufffd", ""]),  # a surrogate
        ([], [""]),
    ],
)
def test_only_whole_characters_are_shown(parts, shown):
    assert pieces(parts) == shown


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=5), st.text(max_size=3).map(str.encode)), max_size=20))
def test_the_joined_stream_is_the_text_of_all_bytes(parts):
    assert "".join(pieces(parts)) == b"".join(parts).decode("utf-8", "replace") == decode(parts.__getitem__, range(len(parts)))


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=20), cuts=st.lists(st.integers(0, 60), max_size=10))
def test_valid_text_however_cut_never_shows_a_replacement(text, cuts):
    data = text.encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    shown = pieces([data[a:b] for a, b in itertools.pairwise(edges)])
    assert "".join(shown) == text and shown[-1] == ""


@pytest.fixture(scope="module")
def library(tokenizer_path):
    return tokenizers.Tokenizer.from_file(str(tokenizer_path))


@settings(max_examples=300, deadline=None)
@given(ids=st.lists(st.integers(0, 1023), max_size=30))
def test_any_tokens_read_as_the_tokenizers_library_reads_them(tokenizer, library, ids):
    stream = TextStream(tokenizer.token_bytes)
    shown = "".join(map(stream.push, ids)) + stream.flush()
    assert shown == library.decode(ids, skip_special_tokens=True)
