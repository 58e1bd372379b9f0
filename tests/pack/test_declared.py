"""Declared models: the published sizes of the real one, and what a config forgets."""

from __future__ import annotations

import pytest

from strata_recipes.errors import ConfigError
from strata_recipes.pack.declared import declared_index
from tests.pack.stated import REAL, SMALL, model

Q2 = ("Q2_0", "Q2_0", "Q2_0")


def test_the_real_model_has_its_published_sizes() -> None:
    index = declared_index(model("declared", REAL, [(48, *Q2)], note="a fit"))
    assert {at.blob_bytes for at in index.layers} == {1_382_400}
    assert index.experts_bytes == 33_973_862_400 and index.geometry.total_experts == 24_576
    assert index.ngram is not None and index.ngram.num_bytes == 28_800_138_240
    assert index.pack_id == "declared" and index.notes == ("a fit",)
    # counted apart: embeddings, output, and per layer the hyper-connections, mixer, router and shared expert
    dense = {t.name: t for t in index.dense}
    assert dense["token_embd.weight"].num_bytes == 248_320 * 2560 // 32 * 34
    assert dense["blk.0.ffn_gate_inp.weight"].format == "F32" and dense["blk.3.attn_q.weight"].shape == (2 * 24 * 256, 2560)
    wide, values = 4 * 2560, 0
    for layer in range(48):
        values += 2 * (2 * 320 * wide + 4 * wide) + 3 * 640 * 2560
        values += (12288 + 1024 + 6144) * 2560 if layer % 4 == 3 else (10240 + 6144 + 96 + 6144) * 2560
    values += 2 * 248_320 * 2560 + 2 * 320 * wide + (wide + 2560) * 2560  # the last: n-gram key and value
    assert sum(t.num_bytes for t in index.dense if t.format == "Q8_0") == values // 32 * 34


def test_formats_by_layer() -> None:
    index = declared_index(model("declared", REAL, [(32, "IQ2_XS", "IQ2_XS", "Q2_0"), (16, "IQ2_S", "IQ2_S", "Q2_0")]))
    assert [at.blob_bytes for at in index.layers] == [1_408_000] * 32 + [1_510_400] * 16
    assert index.layers[32].offset == 32 * 512 * index.layers[0].stride
    assert round(index.experts_bytes / 2**30, 1) == 33.0


def test_every_missing_key_is_named_at_once() -> None:
    stated = model("declared", SMALL | {"hidden": None, "top_k": None, "ngram_rows": None}, [], dense=None)
    with pytest.raises(ConfigError) as caught:
        declared_index(stated)
    assert len(caught.value.faults) == 5
    for word in (
        "model.geometry.hidden",
        "model.geometry.top_k",
        "model.geometry.ngram_rows",
        "model.experts is empty",
        "model.dense is not stated",
    ):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "experts", "sentence"),
    [
        ({}, [(3, *Q2)], "formats for 3 layers, model.geometry.num_layers is 4"),
        ({}, [(4, "Q2_0", "Q2_0", "Q9_9")], "'Q9_9' is no format: use one of F32"),
        ({"expert_width": 40}, [(4, *Q2)], "Q2_0 holds 64 values a block, which does not divide a row of 40"),
        ({"top_k": 41}, [(4, *Q2)], "top_k 41 of 40 experts"),
        ({"rope_sections": [4, 2, 1, 0]}, [(4, *Q2)], "rope_sections"),
        ({"num_layers": 10**9}, [(10**9, *Q2)], "num_layers is 1,000,000,000, more than 4,096"),
        (
            {"ngram_layers": [1, 3]},
            [(4, *Q2)],
            r"ngram_layers \[3\]: of 4 layers attention_interval 4 leaves 0, 1, 2 without attention: name some of these",
        ),
        ({"ngram_layers": [4]}, [(4, *Q2)], r"ngram_layers \[4\]: .* leaves 0, 1, 2 without"),
        ({"attention_interval": 1}, [(4, *Q2)], r"leaves none without attention: raise attention_interval, or state ngram_layers=\[\]"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], experts: list[tuple[int, str, str, str]], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        declared_index(model("declared", SMALL | changes, experts))


@pytest.mark.parametrize("changes", [{"ngram_layers": []}, {"attention_interval": 3}])
def test_what_is_advised_where_every_layer_is_attention_is_taken(changes: dict[str, object]) -> None:
    assert declared_index(model("declared", SMALL | {"attention_interval": 1} | changes, [(4, *Q2)])).geometry.num_layers == 4


def test_without_ngram_layers_there_is_no_table() -> None:
    names = [name for name in SMALL if name.startswith("ngram_")]
    index = declared_index(model("declared", {k: v for k, v in SMALL.items() if k not in names}, [(4, *Q2)]))
    assert index.ngram is None and not [t for t in index.dense if ".ple_" in t.name]


def test_dense_rows_that_no_block_divides_are_f16_and_said() -> None:
    index = declared_index(model("declared", SMALL | {"stream_rank": 24}, [(4, *Q2)]))
    odd = [t for t in index.dense if t.format == "F16"]
    assert {t.shape[-1] for t in odd} == {24} and index.notes[0].startswith(
        f"{len(odd)} dense tensors are F16, because no Q8_0 block divides"
    )
