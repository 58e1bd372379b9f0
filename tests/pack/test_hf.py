"""Hugging Face sources: against transformers' own parameters, against the public converter's GGUF, and spoilt folders."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels_numba.reference import dequantize
from strata_recipes.config import choices, schema
from strata_recipes.errors import FileError, PackError
from strata_recipes.pack.ngram_hash import hash_multipliers, table_offsets, table_sizes
from strata_recipes.pack.reader import Pack, open_pack
from strata_recipes.pack.sources import open_source
from strata_recipes.pack.sources.source import ModelSource
from strata_recipes.pack.writer import build_pack
from tests.pack.checkpoint import INDEX, copy_of, drop, edit_json, edit_shard, holder, make_checkpoint, rename, shards
from tests.pack.gguf_edit import TINY

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "tiny-hf"


def opened(folder: Path) -> ModelSource:
    return open_source(schema.Model(name="m", kind=choices.Source.hf, source=str(folder)))


def packed(folder: Path, target: Path) -> Pack:
    with opened(folder) as source:
        build_pack(source, target)
    return open_pack(target)


def values(pack: Pack, name: str) -> np.ndarray:
    data, form, shape = pack.dense(name)
    return dequantize(np.array(data), form).reshape(shape)


def test_every_rearrangement_against_the_parameters_of_transformers(checkpoint: Path, tmp_path: Path) -> None:
    import torch
    from transformers import Qwen4ExpForCausalLM

    theirs = {k: v.float().numpy() for k, v in Qwen4ExpForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16).state_dict().items()}
    with packed(checkpoint, tmp_path / "p") as pack:
        assert (values(pack, "token_embd.weight") == theirs["model.embed_tokens.weight"]).all()
        gdn, qsa = "model.layers.0.linear_attn.", "model.layers.3.self_attn."
        # value heads: 2 groups of 3 there, 3 rounds of 2 here; 16 values each
        order = [group * 3 + member for member in range(3) for group in range(2)]
        rows = np.concatenate([np.arange(64), 64 + (np.array(order)[:, None] * 16 + np.arange(16)).reshape(-1)])
        assert (values(pack, "blk.0.attn_qkv.weight") == theirs[gdn + "in_proj_qkv.weight"][rows]).all()
        assert (values(pack, "blk.0.ssm_conv1d.weight") == theirs[gdn + "conv1d.weight"][rows, 0]).all()
        assert (values(pack, "blk.0.attn_gate.weight") == theirs[gdn + "in_proj_z.weight"][rows[64:] - 64]).all()
        assert (values(pack, "blk.0.ssm_out.weight") == theirs[gdn + "out_proj.weight"][:, rows[64:] - 64]).all()
        assert (values(pack, "blk.0.ssm_alpha.weight") == theirs[gdn + "in_proj_a.weight"][order]).all()
        assert (values(pack, "blk.0.ssm_beta.weight") == theirs[gdn + "in_proj_b.weight"][order]).all()
        assert (values(pack, "blk.0.ssm_dt.bias") == theirs[gdn + "dt_bias"][order]).all()
        np.testing.assert_allclose(values(pack, "blk.0.ssm_a"), -np.exp(theirs[gdn + "A_log"][order]), rtol=1e-6)
        assert (values(pack, "blk.0.ssm_norm.weight") == theirs[gdn + "norm.weight"]).all()
        assert (values(pack, "blk.3.attn_q_norm.weight") == 1 + theirs[qsa + "q_norm.weight"]).all()
        both = theirs[qsa + "indexer.index_qk_proj.weight"]
        assert (values(pack, "blk.3.indexer.q_proj.weight") == both[:64]).all()
        assert (values(pack, "blk.3.indexer.k_proj.weight") == both[64:]).all()
        experts = theirs["model.layers.2.mlp.experts.gate_up_proj"], theirs["model.layers.2.mlp.experts.down_proj"]
        blob = np.fromfile(pack.experts_path, np.uint8)[pack.index.offset(2, 5) :][: pack.index.layers[2].blob_bytes]
        found = dequantize(blob, "BF16")
        assert (found == np.concatenate([experts[0][5].reshape(-1), experts[1][5].reshape(-1)])).all()
        table = theirs["model.layers.1.ple.ple_embedding.ngram_embedding.weight"]
        rows = np.array([0, len(table) - 1, len(table) // 4, len(table) // 4 - 1, 7])
        data, form = pack.ngram_rows(rows)
        assert (dequantize(data.reshape(-1), form).reshape(len(rows), -1) == table[rows]).all()
        g = pack.index.geometry
        assert (g.ngram_layers, g.attention_interval, g.rope_sections, g.rotary_dim) == ((1,), 4, (2, 1, 1, 0), 8)
        assert pack.eos_token_ids == (2,)


def test_exact_tensors_are_float32_and_experts_keep_their_type(checkpoint: Path, tmp_path: Path) -> None:
    with packed(checkpoint, tmp_path / "p") as pack:
        formats = {t.name: t.format for t in pack.index.dense}
        assert formats["blk.0.ffn_gate_inp.weight"] == formats["blk.0.hc_attn_norm.weight"] == formats["blk.0.ssm_a"] == "F32"
        assert formats["token_embd.weight"] == formats["blk.0.attn_qkv.weight"] == "BF16"
        assert {(at.gate, at.up, at.down) for at in pack.index.layers} == {("BF16", "BF16", "BF16")}


def test_the_hash_of_the_config_is_that_of_the_checkpoint(checkpoint: Path) -> None:
    """transformers stores what it derived from the seed: the numbers derived here must be the same."""
    with opened(checkpoint) as source:
        g = source.index.geometry
    assert g.ngram_multipliers == hash_multipliers(96, 3, 1234)
    assert g.ngram_vocab_sizes == table_sizes(50, 4) == (53, 59, 61, 67)
    assert g.ngram_offsets == table_offsets(g.ngram_vocab_sizes) == (0, 53, 112, 173)


def test_a_checkpoint_without_hash_buffers_gives_the_same_geometry(checkpoint: Path, tmp_path: Path) -> None:
    folder = copy_of(checkpoint, tmp_path / "c")
    stored = json.loads((folder / INDEX).read_text())["weight_map"]
    for name in [n for n in stored if "ple_embedding" in n and "ngram_embedding" not in n]:
        drop(folder, name)
    with opened(folder) as ours, opened(checkpoint) as theirs:
        assert ours.index.geometry == theirs.index.geometry


@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference checkpoint is not beside the repository")
def test_equals_the_public_conversion_of_the_same_weights(tmp_path: Path, tiny_pack: Path) -> None:
    with packed(REFERENCE, tmp_path / "p") as ours, open_pack(tiny_pack) as theirs:
        assert ours.index.geometry == theirs.index.geometry
        assert [(t.name, t.shape) for t in ours.index.dense] == [(t.name, t.shape) for t in theirs.index.dense]
        for tensor in theirs.index.dense:
            a, b = values(ours, tensor.name), values(theirs, tensor.name)
            if tensor.format == "F32":
                assert (a == b).all(), tensor.name
            else:
                assert np.linalg.norm(a - b) < 0.01 * np.linalg.norm(a), tensor.name
        rows = np.arange(ours.index.geometry.ngram_rows)
        (a, form_a), (b, form_b) = ours.ngram_rows(rows), theirs.ngram_rows(rows)
        assert (dequantize(a.reshape(-1), form_a).astype(np.float16) == dequantize(b.reshape(-1), form_b)).all()
        assert ours.eos_token_ids == theirs.eos_token_ids


def _fuse(folder: Path) -> None:
    """One parameter for all experts of a layer, in one file without index, under the names of a vision model's text part."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors: dict[str, Any] = {}
    for path in shards(folder):
        tensors |= load_file(path)
        path.unlink()
    (folder / INDEX).unlink()
    for layer in range(4):
        at = f"model.layers.{layer}.mlp.experts."
        gate, up, down = ([tensors.pop(f"{at}{e}.{part}_proj.weight") for e in range(6)] for part in ("gate", "up", "down"))
        tensors[at + "gate_up_proj"] = torch.stack([torch.cat(pair) for pair in zip(gate, up, strict=True)])
        tensors[at + "down_proj"] = torch.stack(down)
    tensors = {k.replace("model.", "model.language_model.", 1): v for k, v in tensors.items()}
    tensors |= {"model.visual.blocks.0.weight": torch.zeros(3), "mtp.fc.weight": torch.zeros(3)}
    save_file(tensors, folder / "model.safetensors")
    edit_json(folder / "config.json", lambda d: (d.update(text_config=dict(d)), d.update(model_type="qwen4_exp"), d.pop("vocab_size")))


def test_fused_experts_nested_config_and_one_file(checkpoint: Path, tmp_path: Path) -> None:
    folder = copy_of(checkpoint, tmp_path / "c")
    _fuse(folder)
    with packed(checkpoint, tmp_path / "a") as plain, packed(folder, tmp_path / "b") as fused:
        assert plain.index.geometry == fused.index.geometry
        assert "2 vision or MTP tensors of the source are not used" in fused.index.notes[0]
    for name in ("experts.bin", "dense.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_hub_cache_links(checkpoint: Path, tmp_path: Path) -> None:
    blobs, snapshot = copy_of(checkpoint, tmp_path / "blobs"), tmp_path / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for path in list(blobs.iterdir()):
        blob = path.rename(blobs / f"{abs(hash(path.name)):x}")
        (snapshot / path.name).symlink_to(os.path.relpath(blob, snapshot))
    with packed(snapshot, tmp_path / "a") as pack:
        assert pack.ngram_rows(np.array([3]))[0].shape == (1, 32)
    shard = shards(snapshot)[1]
    shard.resolve().unlink()
    with pytest.raises(FileError, match=rf"{shard.name} is a link to .*, which is not there: the download did not finish"):
        opened(snapshot)


def test_tied_embeddings_and_words(checkpoint: Path, tmp_path: Path) -> None:
    folder = copy_of(checkpoint, tmp_path / "c")
    drop(folder, "lm_head.weight")
    edit_json(folder / "config.json", lambda d: d.update(tie_word_embeddings=True, eos_token_id=[2, 5]))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]})
    )
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    with packed(folder, tmp_path / "p") as pack:
        assert (values(pack, "output.weight") == values(pack, "token_embd.weight")).all()
        assert pack.chat_template == "d" and pack.eos_token_ids == (2, 5)
        assert pack.tokenizer_path is not None and pack.tokenizer_path.read_text() == '{"version": "1.0"}'
    (folder / "chat_template.jinja").write_text("own")
    with opened(folder) as source:
        assert source.chat_template == "own"


UP = "model.layers.2.mlp.experts.3.up_proj.weight"


def _swap_in_index(folder: Path) -> None:
    def change(d: dict[str, Any]) -> None:
        one, two = sorted(set(d["weight_map"].values()))[:2]
        d["weight_map"] = {k: {one: two, two: one}.get(v, v) for k, v in d["weight_map"].items()}

    edit_json(folder / INDEX, change)


def _twice(folder: Path) -> None:
    other = next(p for p in shards(folder) if p != holder(folder, "lm_head.weight"))
    import torch

    edit_shard(other, lambda t: t.update({"lm_head.weight": torch.zeros(2)}))


def _add(folder: Path, name: str) -> None:
    import torch

    edit_shard(shards(folder)[0], lambda t: t.update({name: torch.zeros(4)}))
    edit_json(folder / INDEX, lambda d: d["weight_map"].update({name: shards(folder)[0].name}))


def _stray(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(shards(folder)[0].read_bytes())


def _append(data: bytes) -> Callable[[Path], object]:
    return lambda folder: shards(folder)[1].write_bytes(shards(folder)[1].read_bytes() + data)


def _only_partial(folder: Path) -> None:
    for path in [*shards(folder), folder / INDEX]:
        path.unlink()
    (folder / "x.safetensors.incomplete").write_bytes(b"abc")


def _config(**changes: Any) -> Callable[[Path], object]:
    return lambda folder: edit_json(folder / "config.json", lambda d: d.update(changes))


def _dtype(folder: Path) -> None:
    import torch

    edit_shard(holder(folder, "lm_head.weight"), lambda t: t.update({"lm_head.weight": t["lm_head.weight"].to(torch.float8_e4m3fn)}))


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 252120\n"
NOT_IN_MAP = lambda d: d["weight_map"].pop("lm_head.weight")  # noqa: E731
WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing shard": (lambda f: shards(f)[1].unlink(), r"00002-of-.* is not there, but .* names it \(1 of 4 shards are missing\)"),
    "shard lacks a tensor": (
        lambda f: edit_shard(holder(f, UP), lambda t: t.pop(UP)),
        f"tensor '{UP}' is in .*, which is there and does not hold it",
    ),
    "swapped names": (_swap_in_index, "the index is of another download"),
    "tensor not in the index": (lambda f: edit_json(f / INDEX, NOT_IN_MAP), "holds tensor 'lm_head.weight', which .* does not name"),
    "stray numbered shard": (
        _stray("model-00009-of-00009.safetensors"),
        "model-00009-of-00009.safetensors is not in model.safetensors.index.json",
    ),
    "stray single file": (_stray("model.safetensors"), "model.safetensors is not in model.safetensors.index.json"),
    "one tensor twice": (_twice, "tensor 'lm_head.weight' is in .* and again in"),
    "no index": (lambda f: (f / INDEX).unlink(), "holds 4 numbered shards but no model.safetensors.index.json"),
    "trailing bytes": (_append(b"1234567"), "7 more than its header wants"),
    "cut shard": (lambda f: os.truncate(shards(f)[1], 252119), "is cut: it has 252,119 bytes, its header wants 252,120"),
    "LFS pointer": (lambda f: shards(f)[0].write_bytes(LFS), "Git LFS pointer for 252,120 bytes"),
    "web page": (lambda f: shards(f)[0].write_text("<html>429</html>"), "is a web page of 16 bytes"),
    "only partial": (_only_partial, r"holds only a partial download \(x.safetensors.incomplete\)"),
    "partial shard": (lambda f: shards(f)[0].rename(f"{shards(f)[0]}.incomplete"), "only model-00001-of-00004.safetensors.incomplete"),
    "one expert short": (lambda f: drop(f, UP), r"lacks up of expert 3 on layer 2: 5 of 6 experts are whole there"),
    "experts under another name": (
        lambda f: rename(f, "experts.", "experts.switch."),
        "lacks gate of expert 0 on layer 0: 0 of 6 experts are whole",
    ),
    "unknown tensor": (lambda f: _add(f, "foo.bias"), "holds 1 tensors that the model has no place for: 'foo.bias'"),
    "renamed tensor": (
        lambda f: rename(f, "layers.0.mlp.gate.weight", "layers.0.mlp.gat.weight"),
        "no place for: 'model.layers.0.mlp.gat.weight'",
    ),
    "n-gram shard missing": (
        lambda f: drop(f, "model.layers.1.ple.ple_embedding.ngram_embedding.shard_2.weight"),
        "holds 3 parts of the n-gram table, up to number 3, but not number 2",
    ),
    "unreadable type": (_dtype, "'lm_head.weight' is stored as F8_E4M3, this build reads BF16, F16, F32"),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json does not exist"),
    "another model": (_config(model_type="llama"), "states model_type 'llama', this build runs 'qwen4_exp'"),
    "missing key": (_config(hc_lowrank=None), "lacks 'hc_lowrank', which the geometry needs"),
    "no experts": (_config(num_experts=0), "num_experts is 0"),
    "another width": (_config(moe_intermediate_size=40), r"has shape \[32, 64\], the model's geometry wants \[40, 64\]"),
    "odd layers": (_config(layer_types=["indexed_attention"] + ["linear_attention"] * 2 + ["indexed_attention"]), r"on layers \[0, 3\]"),
    "index out of the folder": (
        lambda f: edit_json(f / INDEX, lambda d: d["weight_map"].update(a="../x.safetensors")),
        "no .safetensors file of its own",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_folder_is_refused_with_its_own_sentence(checkpoint: Path, tmp_path: Path, case: str) -> None:
    change, sentence = WRONG[case]
    folder = copy_of(checkpoint, tmp_path / "c")
    change(folder)
    with pytest.raises((PackError, FileError), match=sentence) as caught:
        opened(folder)
    assert caught.value.exit_code == 3 and str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_where_a_folder_is_wanted() -> None:
    with pytest.raises(FileError, match=r"tiny-q2_0\.gguf is a file: model=hf wants the folder"):
        opened(TINY)


def test_a_silu_output_gate_is_read(tmp_path: Path) -> None:
    with opened(make_checkpoint(tmp_path, output_gate_type=None)) as source:
        assert source.index.geometry.output_gate == "silu"
