"""A file of random expert blobs of three sizes, with its index and checksums."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strata_recipes.pack.checksum import blob_checksum
from strata_recipes.pack.index import Geometry, PackIndex
from strata_recipes.pack.layout import layer_experts

GEOMETRY = Geometry(
    num_layers=3, hidden=64, vocab=8, context_length=64, norm_eps=1e-6, attention_interval=4,
    gdn_key_heads=1, gdn_value_heads=1, gdn_head_dim=8, gdn_conv=4,
    query_heads=1, kv_heads=1, head_dim=8, rotary_dim=4, rope_base=1e4, rope_sections=(1, 1), indexer_heads=1, indexer_dim=8,
    index_block=4, index_budget=16, streams=2, stream_rank=4, num_experts=6, top_k=2, expert_width=64, shared_width=8,
    ngram_layers=(), ngram_size=2, ngram_heads=1, ngram_width=4, ngram_conv=2, ngram_rows=0, ngram_eos=0,
    ngram_multipliers=(), ngram_offsets=(), ngram_vocab_sizes=(),
)  # fmt: skip
FORMATS = [("Q2_0", "Q2_0", "Q4_0"), ("BF16", "BF16", "Q8_0"), ("Q8_0", "Q2_0", "Q2_0")]


@dataclass(frozen=True)
class SmallPack:
    path: Path
    index: PackIndex
    blobs: dict[tuple[int, int], NDArray[np.uint8]]
    checksums: NDArray[np.uint64]


def write_small_pack(folder: Path) -> SmallPack:
    index = PackIndex("small", "id", GEOMETRY, layer_experts(GEOMETRY, FORMATS), (), None)
    rng, blobs = np.random.default_rng(3), {}
    stored = np.zeros(index.experts_file_bytes, np.uint8)
    checksums = np.zeros((3, 6), np.uint64)
    for layer in range(3):
        for expert in range(6):
            blob = rng.integers(0, 256, index.layers[layer].blob_bytes, dtype=np.uint8)
            stored[index.offset(layer, expert) :][: blob.size] = blob
            blobs[layer, expert] = blob
            checksums[layer, expert] = blob_checksum(blob.data, layer, expert)
    path = folder / "experts.bin"
    path.write_bytes(stored.tobytes())
    return SmallPack(path, index, blobs, checksums)
