"""GGUF sources: bytes against the public `gguf` package, splits, and every way in which a file can be wrong."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from strata_recipes.config import schema
from strata_recipes.errors import FileError, PackError
from strata_recipes.pack.sources import SHIPPED, open_source
from strata_recipes.pack.sources.gguf import GgufSource
from strata_recipes.pack.writer import build_pack
from tests.pack.gguf_edit import MIXED, TINY, Gguf, Part, read, split


def opened(path: Path) -> GgufSource:
    source = open_source(schema.Model(name="m", source=str(path)))
    assert isinstance(source, GgufSource)
    return source


def test_geometry_of_the_tiny_model() -> None:
    """Against the Hugging Face config of the same model, and the facts page."""
    with opened(TINY) as source:
        g = source.index.geometry
    assert (g.num_layers, g.hidden, g.vocab, g.context_length, g.norm_eps) == (4, 256, 512, 8192, 1e-6)
    assert (g.gdn_key_heads, g.gdn_value_heads, g.gdn_head_dim, g.gdn_conv) == (4, 12, 32, 4)
    assert (g.query_heads, g.kv_heads, g.head_dim, g.rotary_dim, g.rope_base, g.rope_sections) == (6, 2, 64, 16, 1e4, (3, 3, 2, 0))
    assert (g.indexer_heads, g.indexer_dim, g.index_block, g.index_budget) == (4, 64, 4, 64)
    assert (g.streams, g.stream_rank, g.num_experts, g.top_k, g.expert_width, g.shared_width) == (4, 64, 24, 4, 64, 64)
    assert (g.ngram_layers, g.ngram_size, g.ngram_heads, g.ngram_width, g.ngram_rows, g.ngram_eos) == ((1,), 3, 8, 16, 10368, 2)
    assert g.attention_layers == (3,) and g.output_gate == "sigmoid"


def test_all_bytes_of_the_demo_are_those_that_the_gguf_package_sees() -> None:
    theirs = {t.name: t for t in GGUFReader(SHIPPED["shipped:storyteller"]).tensors}
    with open_source(schema.Model(source="shipped:storyteller")) as source:
        g = source.index.geometry
        for layer in range(g.num_layers):
            parts = [theirs[f"blk.{layer}.ffn_{part}_exps.weight"].data for part in ("gate", "up", "down")]
            for expert in (0, 1, g.num_experts - 1):
                assert source.read_expert(layer, expert) == b"".join(p[expert].tobytes() for p in parts)
        seen = {"per_layer_token_embd.weight"} | {
            f"blk.{la}.ffn_{p}_exps.weight" for la in range(g.num_layers) for p in ("gate", "up", "down")
        }
        for tensor, pieces in source.dense_tensors():
            assert b"".join(pieces) == theirs[tensor.name].data.tobytes()
            assert tensor.format == theirs[tensor.name].tensor_type.name
            assert tensor.shape == tuple(theirs[tensor.name].shape[::-1])
            seen.add(tensor.name)
        assert seen == set(theirs)
        assert source.eos_token_ids == (2,) and "<|im_start|>" in (source.chat_template or "") and source.tokenizer_json


def test_formats_a_layer_of_the_mixed_model() -> None:
    with opened(MIXED) as source:
        found = [(at.gate, at.up, at.down, at.blob_bytes, at.stride) for at in source.index.layers]
    values = 64 * 256
    bytes_of = {"IQ2_XS": values // 256 * 74, "IQ4_NL": values // 32 * 18, "IQ2_S": values // 256 * 82, "Q2_0": values // 64 * 18}
    bytes_of |= {"IQ3_XXS": values // 256 * 98, "Q8_0": values // 32 * 34, "IQ4_XS": values // 256 * 136, "Q4_0": values // 32 * 18}
    wanted = [("IQ2_XS", "IQ2_XS", "IQ4_NL"), ("IQ2_S", "IQ2_S", "Q2_0"), ("IQ3_XXS", "IQ3_XXS", "Q8_0"), ("IQ4_XS", "IQ4_XS", "Q4_0")]
    for (gate, up, down, size, stride), names in zip(found, wanted, strict=True):
        assert (gate, up, down) == names
        assert size == sum(bytes_of[n] for n in names) and stride % 4096 == 0 and size <= stride < size + 4096


@pytest.mark.parametrize("cuts", [[5], [1, 40]])
def test_a_split_model_packs_to_the_same_bytes_from_any_shard(tmp_path: Path, cuts: list[int], tiny_pack: Path) -> None:
    paths = split(read(TINY), tmp_path, cuts)
    for number, path in enumerate(paths):
        with opened(path) as source:
            build_pack(source, tmp_path / f"pack{number}")
            assert len(source.files) == len(cuts) + 1
        for name in ("experts.bin", "dense.safetensors", "tokenizer.json"):
            assert (tmp_path / f"pack{number}" / name).read_bytes() == (tiny_pack / name).read_bytes()


def test_offsets_past_32_bits(tmp_path: Path) -> None:
    """The last tensor 5 GiB further on, in a sparse file."""
    model, gap = read(TINY), 5 << 30
    name = "blk.3.ffn_down_exps.weight"
    model.tensors.sort(key=lambda t: t.name == name)
    path = tmp_path / "far.gguf"
    header = model.header(gap=gap)
    with open(path, "wb") as file:
        file.write(header)
        for t in model.tensors[:-1]:
            file.write(t.data + b"\0" * (-len(t.data) % 32))
        file.seek(gap, os.SEEK_CUR)
        file.write(model.tensors[-1].data)
    assert path.stat().st_size > 5 << 30
    size = len(model.tensors[-1].data) // 24
    with opened(path) as source:
        assert source.read_expert(3, 23)[-size:] == model.tensors[-1].data[23 * size :]


def test_vision_and_mtp_tensors_are_named_and_skipped(tmp_path: Path) -> None:
    model = read(TINY)
    odd = 99  # a type that nobody knows: not read, so no reason to refuse
    extra = ["v.blk.0.attn_q.weight", "mm.0.weight", "blk.4.nextn.eh_proj.weight", "blk.4.attn_q.weight"]
    model.tensors += [Part(name, [64, 2], odd, bytes(64)) for name in extra]
    with opened(model.write(tmp_path / "a.gguf")) as source:
        assert set(source.unused) == set(extra)
        assert source.index.geometry.num_layers == 4
        assert "4 vision or MTP tensors of the source are not used: v.blk.0.attn_q.weight" in source.index.notes[0]


def test_a_model_without_ngram_table_and_words(tmp_path: Path) -> None:
    model = read(TINY)
    model.keys = {k: v for k, v in model.keys.items() if not k.startswith(("tokenizer.", "qwen4exp.ple", "qwen4exp.embedding_length_per"))}
    model.tensors = [t for t in model.tensors if ".ple_" not in t.name and t.name != "per_layer_token_embd.weight"]
    with opened(model.write(tmp_path / "a.gguf")) as source:
        assert source.index.ngram is None and source.ngram_location is None and source.index.geometry.ngram_layers == ()
        assert source.tokenizer_json is None and source.chat_template is None and source.eos_token_ids == ()


def test_eos_ids_are_a_union_and_those_outside_the_vocabulary_are_named(tmp_path: Path) -> None:
    model = read(TINY)
    model.set_u32("tokenizer.ggml.eot_token_id", 1)
    model.set_u32("tokenizer.ggml.eom_token_id", 512)
    with opened(model.write(tmp_path / "a.gguf")) as source:
        assert source.eos_token_ids == (2, 1)
        assert source.index.notes == ("end-of-text ids [512] lie outside the vocabulary of 512 and are not used",)


def _drop(name: str) -> Callable[[Gguf], object]:
    return lambda m: m.tensors.remove(m.tensor(name))


def _narrow(m: Gguf) -> None:
    """Experts of width 40 in blocks of 64."""
    t = m.tensor("blk.0.ffn_down_exps.weight")
    t.dims[0] = 40


WRONG_MODELS: dict[str, tuple[Callable[[Gguf], object], str]] = {
    "missing tensor": (_drop("blk.1.ssm_a"), "is complete as a file, but lacks tensor 'blk.1.ssm_a' that its geometry wants"),
    "missing experts": (_drop("blk.2.ffn_up_exps.weight"), r"lacks tensor 'blk.2.ffn_up_exps.weight'.*whole on 3 of 4 layers"),
    "missing table": (_drop("per_layer_token_embd.weight"), "has no tensor 'per_layer_token_embd.weight'"),
    "missing embedding": (_drop("token_embd.weight"), "has no tensor 'token_embd.weight'"),
    "unknown tensor": (
        lambda m: m.tensors.append(Part("foo.bias", [4], 0, bytes(16))),
        r"1 tensors that the model has no place for: 'foo.bias'",
    ),
    "same tensor twice": (lambda m: m.tensors.append(m.tensor("blk.0.ssm_a")), "tensor 'blk.0.ssm_a' is in .* and again in"),
    "one expert short": (
        lambda m: m.tensor("blk.2.ffn_up_exps.weight").dims.__setitem__(2, 23),
        r"shape \[23, 64, 256\], .* wants \[24, 64, 256\]",
    ),
    "block does not divide": (
        _narrow,
        "'blk.0.ffn_down_exps.weight' of shape .*Q2_0 holds 64 values a block, which does not divide a row of 40",
    ),
    "unreadable type": (
        lambda m: setattr(m.tensor("blk.0.attn_gate.weight"), "type", 16),
        "'blk.0.attn_gate.weight' is stored as IQ2_XXS, this build reads F32",
    ),
    "unknown architecture": (lambda m: m.set_text("general.architecture", "llama"), "architecture 'llama', this build runs 'qwen4exp'"),
    "missing key": (lambda m: m.keys.pop("qwen4exp.ssm.group_count"), "lacks the metadata key qwen4exp.ssm.group_count"),
    "text for a number": (lambda m: m.set_text("qwen4exp.expert_count", "24"), "qwen4exp.expert_count is '24', a number is wanted"),
    "no experts": (lambda m: m.set_u32("qwen4exp.expert_count", 0), "num_experts is 0"),
    "too many layers": (lambda m: m.set_u32("qwen4exp.block_count", 4_000_000_000), "states 4,000,000,000 layers, but holds only"),
    "odd attention layers": (lambda m: m.set_i32s("qwen4exp.attention.compress_ratios", [0, 4, 0, 4]), "compress_ratios"),
    "two n-gram layers": (lambda m: m.set_i32s("qwen4exp.ple.layers", [0, 1]), r"layers \[0, 1\], this build reads a model with one"),
    "top-k over experts": (lambda m: m.set_u32("qwen4exp.expert_used_count", 25), "top_k 25 of 24 experts"),
}


@pytest.mark.parametrize("case", WRONG_MODELS)
def test_a_wrong_model_is_refused_with_its_own_sentence(tmp_path: Path, case: str) -> None:
    change, sentence = WRONG_MODELS[case]
    model = read(TINY)
    change(model)
    path = model.write(tmp_path / "a.gguf")
    with pytest.raises(PackError, match=sentence) as caught:
        opened(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def _cut(size: int) -> Callable[[Path], object]:
    return lambda path: os.truncate(path, path.stat().st_size - size)


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 5874816\n"
WRONG_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut by a byte": (_cut(1), r"is cut: it has 5,874,815 bytes, its tensor table wants 5,874,816"),
    "cut by 1,024": (_cut(1024), r"is cut: it has 5,873,792 bytes, its tensor table wants 5,874,816"),
    "cut in its header": (lambda p: os.truncate(p, 900), "damaged or cut: .* the file ends at 900|do not fit in 900 bytes"),
    "4,096 longer": (lambda p: os.truncate(p, p.stat().st_size + 4096), r"has 5,878,912 bytes, 4,096 more than its tensor table wants"),
    "empty": (lambda p: os.truncate(p, 0), r"is empty \(0 bytes\)"),
    "LFS pointer": (lambda p: p.write_bytes(LFS), r"Git LFS pointer for 5,874,816 bytes.*git lfs pull"),
    "web page": (lambda p: p.write_text("\n<!DOCTYPE html><html>Sign in</html>"), "is a web page of 36 bytes, not weights"),
    "zeros": (lambda p: p.write_bytes(bytes(5000)), "zero bytes: it was preallocated and never filled"),
    "another format": (lambda p: p.write_bytes(b"PK\3\4" + bytes(range(100))), r"is not a GGUF file: it starts with b'PK\\x03\\x04'"),
    "folder": (_folder, "is a folder"),
    "pipe": (_fifo, "is a pipe or a device"),
    "not there": (lambda p: p.unlink(), "does not exist"),
    "partial download": (lambda p: p.rename(p.with_name(p.name + ".incomplete")), "only a.gguf.incomplete: the download did not finish"),
    "broken link": (lambda p: (p.unlink(), p.symlink_to("blobs/xyz")), "is a link to blobs/xyz, which is not there"),
    "version 2": (lambda p: p.write_bytes(b"GGUF" + struct.pack("<I", 2) + p.read_bytes()[8:]), "version 2, this build reads version 3"),
    "big-endian": (lambda p: p.write_bytes(b"GGUF" + struct.pack(">I", 3) + p.read_bytes()[8:]), "GGUF of big-endian"),
}


@pytest.mark.parametrize("case", WRONG_FILES)
def test_a_file_that_is_no_whole_gguf_is_refused_with_its_own_sentence(tmp_path: Path, case: str) -> None:
    change, sentence = WRONG_FILES[case]
    path = tmp_path / "a.gguf"
    path.write_bytes(TINY.read_bytes())
    change(path)
    with pytest.raises((PackError, FileError), match=sentence) as caught:
        opened(path)
    assert caught.value.exit_code == 3 and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_shards_that_are_missing_or_swapped_are_named(tmp_path: Path) -> None:
    first, second, third = split(read(TINY), tmp_path, [5, 40])
    second.rename(tmp_path / "away")
    with pytest.raises(FileError, match=r"m-00001-of-00003.gguf is a shard of 3, and .*m-00002-of-00003.gguf is not there \(1 missing\)"):
        opened(first)
    (tmp_path / "away").rename(tmp_path / "x")
    third.rename(second)
    (tmp_path / "x").rename(third)
    with pytest.raises(PackError, match="says it is shard 2 counted from 0, its name says 1: two shards are swapped"):
        opened(first)


def test_two_shards_with_one_tensor_are_refused(tmp_path: Path) -> None:
    model = read(TINY)
    first = split(model, tmp_path, [40])[0]
    twice = Gguf(dict(model.keys), [*model.tensors[:40], model.tensors[60]])
    for key, kind, value in (("split.no", "<IH", 0), ("split.count", "<IH", 2)):
        twice.keys[key] = struct.pack(kind, 2, value)
    twice.write(first)
    with pytest.raises(
        PackError, match=rf"tensor '{model.tensors[60].name}' is in .*00001-of-00002.gguf and again in .*00002-of-00002.gguf"
    ):
        opened(first)


def test_shards_of_two_models_are_refused(tmp_path: Path) -> None:
    model = read(TINY)
    first = split(model, tmp_path, [40])[0]
    changed = Gguf(dict(model.keys), model.tensors[:39])
    changed.set_u16("split.no", 0)
    changed.set_u16("split.count", 2)
    changed.keys["split.tensors.count"] = struct.pack("<Ii", 5, len(model.tensors))
    changed.write(first)
    with pytest.raises(PackError, match=rf"states {len(model.tensors)} tensors over all shards, {len(model.tensors) - 1} were found"):
        opened(first)


def test_a_renamed_shard_is_refused(tmp_path: Path) -> None:
    first = split(read(TINY), tmp_path, [40])[0]
    alone = first.rename(tmp_path / "model.gguf")
    with pytest.raises(PackError, match="says it is one of 2 shards, its name says 1"):
        opened(alone)


def test_ngram_rows_lie_where_the_table_is() -> None:
    with opened(TINY) as source:
        place = source.ngram_location
        assert place is not None and place.row_bytes == 32 and place.parts[0].rows == 10368
        data = TINY.read_bytes()[place.parts[0].offset :][: 10368 * 32]
    assert np.frombuffer(data, np.float16).tobytes() == read(TINY).tensor("per_layer_token_embd.weight").data
