"""A small seeded qwen4_exp checkpoint from transformers, and ways to spoil a copy of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"
CONFIG: dict[str, Any] = dict(
    vocab_size=96, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
    linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=6,
    moe_intermediate_size=32, shared_expert_intermediate_size=32, num_experts_per_tok=2, num_experts=6, max_position_embeddings=512,
    layer_types=["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    hc_count=4, hc_lowrank=16, ple_layer_ids=[2], ple_embed_dim=64, ngram_size=3, heads_per_ngram=2, ngram_vocab_size_base=50,
    split_ngram_parts=4, indexer_n_heads=2, indexer_kv_heads=1, indexer_head_dim=32, indexer_budget=16, indexer_compress_ratio=4,
    output_gate_type="sigmoid", eos_token_id=2, initializer_range=0.08,
    rope_parameters={
        "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1], "mrope_interleaved": True,
    },
)  # fmt: skip


def make_checkpoint(folder: Path, **changes: Any) -> Path:
    """Writes the checkpoint in bf16; every weight random, norms too, so that a missing rearrangement shows."""
    import torch
    from transformers import Qwen4ExpForCausalLM, Qwen4ExpTextConfig

    torch.manual_seed(5)
    model = Qwen4ExpForCausalLM(Qwen4ExpTextConfig(**(CONFIG | changes)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 or "conv1d" in name:
                parameter.normal_(0, 0.2)
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="250KB")
    return folder


def copy_of(checkpoint: Path, folder: Path) -> Path:
    return Path(shutil.copytree(checkpoint, folder))


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def edit_shard(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Loads a shard as torch tensors, changes them, writes it back."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def holder(folder: Path, name: str) -> Path:
    """The shard that holds a tensor."""
    return folder / json.loads((folder / INDEX).read_text())["weight_map"][name]


def rename(folder: Path, old: str, new: str) -> None:
    """Renames tensors by a piece of their names, in shards and index alike."""
    for path in shards(folder):
        edit_shard(path, lambda t: [t.update({k.replace(old, new): t.pop(k)}) for k in list(t) if old in k])
    edit_json(folder / INDEX, lambda d: d.update(weight_map={k.replace(old, new): v for k, v in d["weight_map"].items()}))


def drop(folder: Path, name: str) -> None:
    """Removes a tensor from its shard and from the index."""
    edit_shard(holder(folder, name), lambda t: t.pop(name))
    edit_json(folder / INDEX, lambda d: d["weight_map"].pop(name))
