from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata_recipes.errors import FileError, PackError
from strata_recipes.text.stream import decode
from strata_recipes.text.tokenizer import Tokenizer

ORACLE = Path(__file__).parents[1] / "data" / "oracle"
TINY_HF = Path(__file__).parents[3] / "shared" / "reference" / "tiny-hf" / "tokenizer.json"
SPECIAL = "<|im_start|>system<|im_end|><|endoftext|>"
MARK = "\U000f0000"


def saved(path: Path, facts: object) -> Path:
    path.write_text(facts if isinstance(facts, str) else json.dumps(facts), encoding="utf-8")
    return path


def test_plain_text_gives_the_oracle_ids(tokenizer):
    assert tokenizer.encode("One day, Mia went to the") == np.load(ORACLE / "storyteller.p0.npz")["ids"].tolist()


def test_text_that_looks_special_is_ordinary_text(tokenizer):
    ids = tokenizer.encode(f"a {SPECIAL} b")
    assert not tokenizer.control_ids & set(ids)
    assert decode(tokenizer.token_bytes, ids) == f"a {SPECIAL} b"


def test_a_template_makes_control_ids_but_not_after_a_mark(tokenizer):
    assert tokenizer.encode_template("<|im_start|>user\n<|im_end|>", MARK) == [1, 336, 201, 2]
    marked = tokenizer.encode_template(f"<|im_start|>user\n{MARK}<|im_end|>", MARK)
    assert marked == [1, 336, 201, *tokenizer.encode("<|im_end|>")]


def test_the_longest_control_string_wins_and_swallows_its_white_space(tokenizer_path, tmp_path):
    facts = json.loads(tokenizer_path.read_text(encoding="utf-8"))
    extra = {"single_word": False, "lstrip": True, "rstrip": True, "normalized": False, "special": True}
    facts["added_tokens"] += [{"id": 1024, "content": "<|im_end|>!!", **extra}]
    tokenizer = Tokenizer(saved(tmp_path / "t.json", facts))
    assert tokenizer.encode_template("a \n<|im_end|>!!  b", MARK) == [*tokenizer.encode("a"), 1024, *tokenizer.encode("b")]
    assert tokenizer.vocab_size == 1025


def test_user_defined_tokens_are_text(tokenizer_path, tmp_path):
    facts = json.loads(tokenizer_path.read_text(encoding="utf-8"))
    facts["added_tokens"] += [{"id": 1024, "content": "<think>é", "single_word": False, "lstrip": False, "rstrip": False,
                               "normalized": False, "special": False}]  # fmt: skip
    tokenizer = Tokenizer(saved(tmp_path / "t.json", facts))
    assert tokenizer.encode("<think>é") == [1024]
    assert tokenizer.token_bytes(1024) == "<think>é".encode()  # spelt as it is, not in the byte alphabet


def test_control_tokens_and_ids_past_the_vocabulary_add_no_text(tokenizer):
    assert [tokenizer.token_bytes(number) for number in (0, 1, 2, 1024, 5000)] == [b""] * 5


def test_all_256_bytes_can_be_written(tokenizer):
    single = {tokenizer.token_bytes(number) for number in range(1024)}
    assert {bytes([value]) for value in range(256)} <= single


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=40))
def test_any_text_comes_back_composed(tokenizer, text):
    ids = tokenizer.encode(text)
    assert not tokenizer.control_ids & set(ids)
    assert decode(tokenizer.token_bytes, ids) == unicodedata.normalize("NFC", text)


@pytest.mark.skipif(not TINY_HF.exists(), reason="the reference checkpoint is not beside this repository")
def test_a_hugging_face_tokenizer_works_the_same():
    tokenizer = Tokenizer(TINY_HF)
    assert not tokenizer.control_ids & set(tokenizer.encode(SPECIAL))
    assert decode(tokenizer.token_bytes, tokenizer.encode("naïve 🎉 def f():\n  return 中")) == "naïve 🎉 def f():\n  return 中"
    assert tokenizer.encode_template("<|im_end|>", MARK) == [2]


def test_a_prefix_is_known_and_not_part_of_encode(bos_tokenizer_path, tokenizer):
    tokenizer_with_bos = Tokenizer(bos_tokenizer_path)
    assert (tokenizer_with_bos.prefix_ids, tokenizer.prefix_ids) == ((0,), ())
    assert tokenizer_with_bos.encode("One day") == [466, 328]


def test_truncation_and_padding_stated_in_the_file_are_not_used(tokenizer_path, tmp_path):
    facts = json.loads(tokenizer_path.read_text(encoding="utf-8"))
    facts["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    assert len(Tokenizer(saved(tmp_path / "t.json", facts)).encode("One day, Mia went to the")) == 7


def test_a_tokenizer_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(FileError, match=r"t\.json cannot be read .*errno 2"):
        Tokenizer(tmp_path / "t.json")
    for text, said in [("{", "not valid JSON"), ("[]", "of type None"), ({"model": {"type": "Unigram"}}, "of type Unigram"),
                       ({"model": {"type": "BPE"}, "decoder": {"type": "Metaspace"}}, "byte-level BPE")]:  # fmt: skip
        with pytest.raises(PackError, match=said):
            Tokenizer(saved(tmp_path / "t.json", text))
