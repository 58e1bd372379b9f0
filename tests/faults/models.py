"""Small odd models as GGUF files, from a seed: F1 "tiny", F2 "wide router", F3 "mixed". Written apart from the reader they check.

F1: 4 layers, 6 experts, top-2, hidden 96, width 40, bf16: a record of 23,040 bytes is 5.625 pages.
F2: one wide layer set, 300 experts, top-8, hidden 32, width 16: ids past 255. F3: F1 with another format on each layer.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernels_numba.formats import FORMATS
from kernels_numba.reference import dequantize
from strata_recipes.pack.index import Geometry
from strata_recipes.pack.layout import dense_wanted, expert_shapes, ngram_wanted
from tests.pack.gguf_edit import Gguf, Part

Weights = dict[str, NDArray[np.float64]]
Formats = tuple[str, str, str]  # gate, up, down

TINY = Geometry(
    num_layers=4, hidden=96, vocab=128, context_length=512, norm_eps=1e-6, attention_interval=4,
    gdn_key_heads=2, gdn_value_heads=4, gdn_head_dim=16, gdn_conv=4,
    query_heads=4, kv_heads=2, head_dim=32, rotary_dim=8, rope_base=1e4, rope_sections=(2, 1, 1, 0),
    indexer_heads=6, indexer_dim=24, index_block=4, index_budget=16, streams=2, stream_rank=8,
    num_experts=6, top_k=2, expert_width=40, shared_width=24,
    ngram_layers=(1,), ngram_size=3, ngram_heads=2, ngram_width=12, ngram_conv=4, ngram_rows=236, ngram_eos=2,
    ngram_multipliers=(982451653, 57885161, 32416190071), ngram_offsets=(0, 53, 112, 173), ngram_vocab_sizes=(53, 59, 61, 63),
)  # fmt: skip
WIDE = dataclasses.replace(TINY, hidden=32, head_dim=16, num_experts=300, top_k=8, expert_width=16, ngram_layers=(2,))
BF16: Formats = ("BF16", "BF16", "BF16")
# width 40 is no multiple of any block, so `down` keeps a wider type than gate and up, as real recipes do
MIXED: tuple[Formats, ...] = (BF16, ("Q8_0", "Q8_0", "F16"), ("Q4_0", "Q4_0", "BF16"), ("BF16", "BF16", "F32"))


@dataclass(frozen=True)
class Made:
    """A model file, its geometry, and its weights as the file's bytes stand for them."""

    path: Path
    geometry: Geometry
    weights: Weights = field(repr=False)


def make(
    path: Path,
    geometry: Geometry = TINY,
    formats: Sequence[Formats] = (BF16,),
    *,
    seed: int = 0,
    change: Callable[[Weights], object] = lambda weights: None,
) -> Made:
    """Writes the model; `change` may edit the values before they are stored. `formats` repeat over the layers."""
    g, rng = geometry, np.random.default_rng(seed)
    wanted = [(w.name, w.shape, "F32") for w in dense_wanted(g)] + [_table(g)]
    for layer in range(g.num_layers):
        for part, name in zip(("gate", "up", "down"), formats[layer % len(formats)], strict=True):
            wanted.append((f"blk.{layer}.ffn_{part}_exps.weight", (g.num_experts, *expert_shapes(g)[part]), name))
    weights: Weights = {name: _values(name, shape, rng) for name, shape, _ in wanted}
    change(weights)
    model = Gguf(dict(_keys(g)))
    for name, shape, kind in wanted:
        data = stored(weights[name], kind)
        weights[name] = dequantize(np.frombuffer(data, np.uint8), kind).astype(np.float64).reshape(shape)
        model.tensors.append(Part(name, list(reversed(shape)), FORMATS[kind].ggml_type, data))
    return Made(model.write(path), g, weights)


def f1(folder: Path) -> Made:
    return make(folder / "f1.gguf")


def f2(folder: Path) -> Made:
    """Of 40 random tokens every eighth choice is an expert past 254."""
    return make(folder / "f2.gguf", WIDE, seed=2)


def f3(folder: Path, formats: Sequence[Formats] = MIXED) -> Made:
    return make(folder / "f3.gguf", TINY, formats, seed=3)


def stored(values: NDArray[np.float64], kind: str) -> bytes:
    """Values as a format stores them; the quantized ones by rounding to the nearest code."""
    if kind in ("F32", "F16"):
        return values.astype(np.float32 if kind == "F32" else np.float16).tobytes()
    if kind == "BF16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    blocks = values.reshape(-1, 32)
    most = np.abs(blocks).max(1, keepdims=True)
    scale = (most / (127 if kind == "Q8_0" else 8)).astype(np.float16)
    codes = np.rint(np.divide(blocks, scale.astype(np.float64), out=np.zeros_like(blocks), where=scale != 0))
    if kind == "Q8_0":
        quants = np.clip(codes, -127, 127).astype(np.int8).view(np.uint8)
    else:
        nibbles = np.clip(codes + 8, 0, 15).astype(np.uint8)
        quants = nibbles[:, :16] | (nibbles[:, 16:] << 4)
    return np.concatenate([scale.view(np.uint8), quants], axis=1).tobytes()


def _table(g: Geometry) -> tuple[str, tuple[int, ...], str]:
    table = ngram_wanted(g)
    assert table is not None
    return table.name, table.shape, "F16"


def _values(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    """Random everywhere, norms and convolutions too, at sizes that keep all layers alive."""
    values = rng.standard_normal(shape)
    if "norm" in name:
        return 1 + 0.2 * values
    if name.endswith("ssm_a"):
        return -np.exp(0.5 * values)
    if name.endswith("ffn_gate_inp.weight"):
        return values * rng.lognormal(0, 0.45, (shape[0], 1)) * 3 / np.sqrt(shape[-1])
    return values * (0.5 if "conv" in name or "dt" in name else 1.5 / np.sqrt(shape[-1]) if "token_embd" not in name else 1)


def _keys(g: Geometry) -> Mapping[str, bytes]:
    words = Gguf()
    words.set_text("general.architecture", "qwen4exp")
    recurrent = [0 if g.is_attention(layer) else 1 for layer in range(g.num_layers)]
    counts = {
        "block_count": g.num_layers, "context_length": g.context_length, "embedding_length": g.hidden,
        "attention.head_count": g.query_heads, "attention.head_count_kv": g.kv_heads, "attention.key_length": g.head_dim,
        "expert_count": g.num_experts, "expert_used_count": g.top_k, "expert_feed_forward_length": g.expert_width,
        "expert_shared_feed_forward_length": g.shared_width, "ssm.conv_kernel": g.gdn_conv, "ssm.state_size": g.gdn_head_dim,
        "ssm.group_count": g.gdn_key_heads, "ssm.time_step_rank": g.gdn_value_heads, "full_attention_interval": g.attention_interval,
        "rope.dimension_count": g.rotary_dim, "hyper_connection.count": g.streams, "hyper_connection.low_rank": g.stream_rank,
        "attention.indexer.head_count": g.indexer_heads, "attention.indexer.key_length": g.indexer_dim,
        "attention.indexer.top_k": g.index_budget, "ple.ngram_size": g.ngram_size, "ple.heads_per_ngram": g.ngram_heads,
        "ple.conv_kernel": g.ngram_conv, "ple.eos_token_id": g.ngram_eos, "embedding_length_per_layer_input": g.ngram_width,
    }  # fmt: skip
    for key, value in counts.items():
        words.set_u32(f"qwen4exp.{key}", value)
    words.set_u32("tokenizer.ggml.eos_token_id", g.ngram_eos)
    words.set_i32s("qwen4exp.rope.dimension_sections", list(g.rope_sections))
    words.set_i32s("qwen4exp.attention.recurrent_layers", recurrent)
    words.set_i32s("qwen4exp.attention.compress_ratios", [g.index_block * (1 - one) for one in recurrent])
    words.set_i32s("qwen4exp.ple.layers", list(g.ngram_layers))
    words.set_i32s("qwen4exp.ple.head_offsets", list(g.ngram_offsets))
    words.set_i32s("qwen4exp.ple.head_vocab_sizes", list(g.ngram_vocab_sizes))
    words.keys["qwen4exp.ple.layer_multipliers"] = struct.pack("<IIQ3q", 9, 11, 3, *g.ngram_multipliers)
    for key, number in (("rope.freq_base", g.rope_base), ("attention.layer_norm_rms_epsilon", g.norm_eps)):
        words.keys[f"qwen4exp.{key}"] = struct.pack("<If", 6, number)
    return words.keys
