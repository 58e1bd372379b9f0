from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, pre_tokenizers

from strata_recipes.errors import PackError
from strata_recipes.pack.sources.gguf_tokenizer import WORDS, tokenizer_json
from tests.text.gguf_metadata import gguf_metadata

ROOT = Path(__file__).parents[2]
TINY_GGUF = ROOT / "tests" / "data" / "tiny-q2_0.gguf"
TINY_HF = ROOT.parent / "shared" / "reference" / "tiny-hf" / "tokenizer.json"


def built(metadata: dict[str, Any], **changes: Any) -> Tokenizer:
    text = tokenizer_json(metadata | {f"tokenizer.ggml.{key}": value for key, value in changes.items()})
    assert text is not None
    return Tokenizer.from_str(text)


def test_a_file_without_a_vocabulary_has_no_tokenizer(metadata):
    assert tokenizer_json({}) is None
    assert tokenizer_json({"tokenizer.ggml.model": "no_vocab"}) is None
    assert tokenizer_json(metadata | {"tokenizer.ggml.model": "none"}) is None


def test_every_token_keeps_its_id_and_every_merge_is_used(metadata):
    tokenizer = built(metadata)
    assert tokenizer.get_vocab_size() == len(metadata["tokenizer.ggml.tokens"]) == 1024
    assert all(tokenizer.token_to_id(token) == number for number, token in enumerate(metadata["tokenizer.ggml.tokens"]))
    assert [tokenizer.id_to_token(i) for i in tokenizer.encode("The secret of the code").ids] == ["The", "Ġsecret", "Ġof", "Ġthe", "Ġcode"]


def test_control_tokens_are_special_and_user_defined_ones_are_not(metadata):
    types = [*metadata["tokenizer.ggml.token_type"]]
    types[1] = 4
    added = built(metadata, token_type=types).get_added_tokens_decoder()
    assert {number: token.special for number, token in added.items()} == {0: True, 1: False, 2: True}


@pytest.mark.parametrize("name", ["qwen2", "qwen35"])
def test_words_are_cut_as_the_model_family_cuts_them(name):
    module = {"qwen2": "qwen2.tokenization_qwen2", "qwen35": "qwen3_5.tokenization_qwen3_5"}[name]
    theirs = pytest.importorskip(f"transformers.models.{module}").PRETOKENIZE_REGEX
    ours, truth = (pre_tokenizers.Split(Regex(words), "isolated") for words in (WORDS[name], theirs))

    @settings(max_examples=150, deadline=None)
    @given(st.text(st.sampled_from("aZé 'sSré\u0301\u0e48ก12٣_-\n\r\t 中🎉\u200d'LLve"), max_size=24))
    def same(text: str) -> None:
        assert ours.pre_tokenize_str(text) == truth.pre_tokenize_str(text)

    same()


def test_the_two_pre_tokenizers_differ_in_combining_marks():
    cut = {
        name: [word for word, _ in pre_tokenizers.Split(Regex(words), "isolated").pre_tokenize_str("ก่ก")] for name, words in WORDS.items()
    }
    assert cut == {"qwen2": ["ก", "่ก"], "qwen35": ["ก่ก"]}


def test_decomposed_text_gives_the_ids_of_composed_text(metadata):
    tokenizer = built(metadata)
    assert tokenizer.encode("cafe\u0301").ids == tokenizer.encode("caf\u00e9").ids


@pytest.mark.parametrize(("wanted", "first"), [(True, [0]), (False, [])])
def test_bos_is_put_first_only_where_the_file_asks_for_it(metadata, wanted, first):
    tokenizer = built(metadata, add_bos_token=wanted, bos_token_id=0)
    assert tokenizer.encode("One day").ids == [*first, 466, 328]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "llama"}, "tokenizer.ggml.model is 'llama'"),
        ({"pre": "tekken"}, "'tekken', this build knows qwen2, qwen35"),
        ({"pre": None}, "tokenizer.ggml.pre is None"),
        ({"tokens": []}, "no tokenizer.ggml.tokens"),
        ({"merges": None}, "no tokenizer.ggml.merges"),
        ({"token_type": [1, 1]}, "has 2 entries, tokenizer.ggml.tokens has 1024"),
        ({"merges": ["h e", "h"]}, r"merges\[1\] is 'h'"),
        ({"merges": ["q z"]}, r"merges\[0\] is 'q z'"),
        ({"tokens": ["a", "b", "a"], "token_type": [1, 1, 1]}, "holds 'a' twice"),
        ({"add_bos_token": True, "bos_token_id": 1024}, "is 1024, wanted 0 to 1023"),
        ({"add_bos_token": True}, "is None, wanted 0 to 1023"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(metadata, changes, said):
    with pytest.raises(PackError, match=said):
        built(metadata, **changes)


@pytest.mark.skipif(not TINY_HF.exists(), reason="the reference checkpoint is not beside this repository")
def test_the_converted_file_encodes_like_the_checkpoint_it_came_from():
    text, truth = tokenizer_json(gguf_metadata(TINY_GGUF)), Tokenizer.from_file(str(TINY_HF))
    for words in ("the model returns on i", "def one(self): return None", "caf\u00e9 \u4e2d", "<|im_start|>user\n"):
        assert Tokenizer.from_str(text or "").encode(words).ids == truth.encode(words).ids
