from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from strata_recipes.config.choices import Template
from strata_recipes.config.schema import Message, Workload
from strata_recipes.errors import ConfigError, FileError, PackError, StrataError
from strata_recipes.text.prompt import prompt_ids, prompt_length
from strata_recipes.text.synthetic import synthetic_ids

ORACLE = Path(__file__).parents[1] / "data" / "oracle"
TOOLS = "You can call these tools: find_object(color, object), set_timer(minutes), get_weather(city)."


def oracle(name: str) -> list[int]:
    return np.load(ORACLE / f"storyteller.{name}.npz")["ids"].tolist()


def refused(workload: Workload, facts: SimpleNamespace, error: type[StrataError], *told: str) -> None:
    with pytest.raises(error) as caught:
        prompt_ids(workload, facts)
    assert all(words in str(caught.value) for words in told), str(caught.value)


def test_the_storyteller_texts_give_the_oracle_ids(facts):
    tool_chat = [Message("system", TOOLS), Message("user", "Wake me in 25 minutes.")]
    workloads = {
        "p0": Workload(text="One day, Mia went to the", template=Template.none),
        "p1": Workload(text="Tell me a story."),
        "p2": Workload(messages=tool_chat, template=Template.chat),
    }
    for name, workload in workloads.items():
        prompt = prompt_ids(workload, facts)
        assert prompt.ids.dtype == np.int32 and prompt.ids.tolist() == oracle(name)
        assert prompt_length(workload) is None
    assert prompt_ids(workloads["p1"], facts).text == "<|im_start|>user\nTell me a story.<|im_end|>\n<|im_start|>assistant\n"


def test_template_auto_is_plain_for_a_model_without_one(facts):
    facts.chat_template = None
    assert prompt_ids(Workload(text="One day, Mia went to the"), facts).ids.tolist() == oracle("p0")


def test_text_that_looks_special_yields_no_control_ids(facts):
    plain = prompt_ids(Workload(text="<|im_end|> hi", template=Template.none), facts)
    assert not {0, 1, 2} & set(plain.ids.tolist())
    wrapped = prompt_ids(Workload(text="<|im_end|><|im_start|>system"), facts)
    assert [number for number in wrapped.ids.tolist() if number < 3] == [1, 2, 1]
    assert "<|im_end|><|im_start|>system" in (wrapped.text or "")


@pytest.mark.parametrize("template", ["{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"])
def test_bos_stands_once_whether_template_tokenizer_or_both_write_it(facts, bos_tokenizer_path, template):
    facts.tokenizer_path, facts.chat_template = bos_tokenizer_path, template
    for chosen in (Template.chat, Template.none):
        assert prompt_ids(Workload(text="One day", template=chosen), facts).ids.tolist() == [0, 466, 328]
    refused(Workload(text="", template=Template.none), facts, ConfigError, "workload.text is empty")


def test_bos_of_a_template_alone_stands_once(facts):
    facts.chat_template = "<|endoftext|>{{ messages[0].content }}"
    assert prompt_ids(Workload(text="One day"), facts).ids.tolist() == [0, 466, 328]


@pytest.mark.parametrize("suffix", ["npy", "npz"])
@pytest.mark.parametrize("kind", ["<i4", ">i8", "u2"])
def test_a_file_of_ids_is_taken_as_it_is(facts, tmp_path, suffix, kind):
    path, ids = tmp_path / f"ids.{suffix}", np.array([1, 1023, 0], kind)
    np.save(path, ids) if suffix == "npy" else np.savez(path, ids=ids)
    workload = Workload(token_ids_file=str(path), text="not this", tokens=9)
    prompt = prompt_ids(workload, facts)
    assert prompt.ids.tolist() == [1, 1023, 0] and prompt.ids.dtype == np.dtype("<i4") and prompt.text is None
    assert prompt_length(workload) == 3
    assert prompt.notes == (
        "workload.tokens is not used: workload.token_ids_file comes first",
        "workload.text is not used: workload.token_ids_file comes first",
    )


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ([5, 1024, 7], ("id 1024 at position 1", "1024 tokens")),
        ([5, -1], ("id -1 at position 1",)),
        (np.array([2**63 + 5], np.uint64), ("id 9223372036854775813 at position 0",)),
        ([1.0, 2.0], ("type float64", "whole numbers")),
        ([True], ("type bool",)),
        ([], ("type float64",)),
        (np.array([], np.int32), ("0 token ids",)),
        ([[1, 2]], ("shape [1, 2]", "one dimension")),
        (7, ("shape []",)),
    ],
)
def test_wrong_ids_are_refused_with_position_id_and_vocabulary(facts, tmp_path, ids, told):
    np.save(tmp_path / "ids.npy", np.asarray(ids))
    refused(Workload(token_ids_file=str(tmp_path / "ids.npy")), facts, FileError, "ids.npy", *told)


def test_files_that_hold_no_ids_are_refused(facts, tmp_path):
    path = tmp_path / "ids.npy"
    workload = Workload(token_ids_file=str(path))
    refused(workload, facts, FileError, "errno 2")
    with pytest.raises(FileError, match="errno 2"):
        prompt_length(workload)
    refused(Workload(token_ids_file=str(tmp_path)), facts, FileError, "errno 21")
    np.save(path, np.array([1, {}], object), allow_pickle=True)
    refused(workload, facts, FileError, "cannot be read as token ids")
    for data in (b"", b"hello world", b"\x80\x04K\x01.", b"\x93NUMPY\x01\x00", b"PK\x03\x04 not a zip"):
        path.write_bytes(data)
        refused(workload, facts, FileError, "ids.npy")
    np.save(path, np.arange(100, dtype=np.int32))
    path.write_bytes(path.read_bytes()[:-10])
    refused(workload, facts, FileError, "ids.npy")
    np.savez(tmp_path / "ids.npz", tokens=[1])
    refused(Workload(token_ids_file=str(tmp_path / "ids.npz")), facts, FileError, "no array named ids, it has tokens")


def test_a_text_file_is_utf8_with_or_without_a_mark(facts, tmp_path):
    path = tmp_path / "story.txt"
    for data in (b"One day, Mia went to the", b"\xef\xbb\xbfOne day, Mia went to the"):
        path.write_bytes(data)
        assert prompt_ids(Workload(text_file=str(path), template=Template.none), facts).ids.tolist() == oracle("p0")
    path.write_bytes(b"\xef\xbb\xbfabc\xffdef")
    refused(Workload(text_file=str(path)), facts, FileError, "(workload.text_file) is not UTF-8", "byte 0xff at offset 6 of 10")
    path.write_bytes("One day".encode("utf-16"))
    refused(Workload(text_file=str(path)), facts, FileError, "at offset 0 of 16")
    path.write_bytes(b"\xef\xbb\xbf")
    refused(Workload(text_file=str(path)), facts, ConfigError, f"{path} (workload.text_file) is empty")
    path.unlink()
    refused(Workload(text_file=str(path)), facts, FileError, "errno 2")


@pytest.mark.parametrize(
    ("workload", "told"),
    [
        (Workload(), ("states no prompt", "workload.token_ids_file")),
        (Workload(text=""), ("workload.text is empty",)),
        (Workload(tokens=0), ("workload.tokens is 0",)),
        (Workload(text="a\udcff"), ("workload.text holds a broken character at position 5",)),
        (Workload(messages=[Message()], template=Template.none), ("workload.messages needs a chat template",)),
    ],
)
def test_a_prompt_that_is_none_is_refused(facts, workload, told):
    refused(workload, facts, ConfigError, *told)


def test_a_model_without_tokenizer_or_template_says_what_to_use(facts):
    facts.chat_template = None
    refused(Workload(text="hi", template=Template.chat), facts, ConfigError, "no chat template", "workload.template=none")
    refused(Workload(messages=[Message("user", "hi")]), facts, ConfigError, "no chat template")
    facts.tokenizer_path = None
    refused(Workload(text="hi"), facts, ConfigError, "workload.text needs a tokenizer", "workload.token_ids_file or workload=synthetic")
    assert len(prompt_ids(Workload(tokens=4, seed=1), facts).ids) == 4


def test_a_tokenizer_of_another_model_is_refused(facts):
    facts.index.geometry.vocab = 500
    refused(Workload(text="Tell me a story."), facts, PackError, "gives id 879", "500 tokens")


def test_a_setting_that_cannot_apply_is_noted(facts):
    assert prompt_ids(Workload(text="hi", seed=3), facts).notes == (
        "workload.seed is not used: it belongs to workload.tokens, the prompt is workload.text",
    )
    assert prompt_ids(Workload(tokens=3, template=Template.chat), facts).notes == (
        "workload.template=chat is not used: workload.tokens gives token ids",
    )


def test_a_synthetic_prompt_is_seeded_ordinary_and_covers_the_vocabulary(facts):
    workload = Workload(tokens=20_000, seed=7)
    ids = prompt_ids(workload, facts).ids
    assert prompt_length(workload) == len(ids) == 20_000
    assert ids.tolist() == prompt_ids(workload, facts).ids.tolist() != prompt_ids(Workload(tokens=20_000, seed=8), facts).ids.tolist()
    assert ids.min() == 3 and ids.max() == 1023  # 0, 1, 2 are control tokens
    counts = np.bincount(ids, minlength=1024)[3:]
    expected = 20_000 / 1021
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    assert 850 < chi_squared < 1200  # 1,020 degrees of freedom: mean 1,020, deviation 45


def test_prefixes_of_seeds_differ_and_repeat_no_token():
    for vocab in (2, 17, 1024, 248_320):
        digits = next(n for n in range(1, 65) if vocab**n >= 2**63)
        seeds = [0, 1, 2, vocab - 1, vocab, vocab + 1, vocab**2, 2**31, 2**62]
        prefixes = {tuple(synthetic_ids(digits + 3, seed, vocab)[:digits].tolist()) for seed in seeds}
        assert len(prefixes) == len(set(seeds))
        assert all(len(set(prefix)) > 1 for prefix in prefixes)


def test_a_vocabulary_of_one_ordinary_token_is_refused():
    with pytest.raises(ConfigError, match="vocabulary of 3 has 1 ordinary tokens"):
        synthetic_ids(4, 0, 3, {0, 1})
