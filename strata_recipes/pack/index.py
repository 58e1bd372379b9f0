"""What a model's files hold, as frozen values: geometry, and where each expert's bytes lie. Opens nothing."""

from __future__ import annotations

from dataclasses import dataclass

FORMAT_VERSION = 1
ALIGNMENT = 4096  # every blob starts on this, so that a direct read needs no rounding


@dataclass(frozen=True)
class Geometry:
    """The shape of a qwen4_exp model; counts unless the name says otherwise."""

    num_layers: int
    hidden: int
    vocab: int
    context_length: int
    norm_eps: float
    attention_interval: int  # every n-th layer is QSA attention (layers n-1, 2n-1, ..), the others GDN
    # gated delta net
    gdn_key_heads: int
    gdn_value_heads: int
    gdn_head_dim: int  # of keys and values
    gdn_conv: int  # taps of the short convolution
    # QSA: attention over selected blocks
    query_heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int
    rope_base: float
    rope_sections: tuple[int, ...]
    indexer_heads: int
    indexer_dim: int
    index_block: int  # tokens pooled into one block
    index_budget: int  # tokens selected, in whole blocks
    # hyper-connections
    streams: int
    stream_rank: int
    # experts
    num_experts: int
    top_k: int
    expert_width: int
    shared_width: int
    # n-gram embedding (PLE)
    ngram_layers: tuple[int, ...]  # 0-based
    ngram_size: int
    ngram_heads: int  # for each order from 2 to ngram_size
    ngram_width: int  # values a row
    ngram_conv: int
    ngram_rows: int  # of the whole table
    ngram_eos: int  # token id that cuts the history
    ngram_multipliers: tuple[int, ...]
    ngram_offsets: tuple[int, ...]
    ngram_vocab_sizes: tuple[int, ...]
    output_gate: str = "sigmoid"

    def is_attention(self, layer: int) -> bool:
        """True for a QSA layer, False for a GDN layer."""
        return (layer + 1) % self.attention_interval == 0

    @property
    def attention_layers(self) -> tuple[int, ...]:
        return tuple(i for i in range(self.num_layers) if self.is_attention(i))

    @property
    def total_experts(self) -> int:
        return self.num_layers * self.num_experts


@dataclass(frozen=True)
class LayerExperts:
    """One layer's routed experts: all of one size. A blob is gate | up | down, row-major, as the source has them."""

    gate: str  # format names, see kernels_numba.formats
    up: str
    down: str
    gate_bytes: int
    up_bytes: int
    down_bytes: int
    offset: int  # of expert 0 in experts.bin

    @property
    def blob_bytes(self) -> int:
        return self.gate_bytes + self.up_bytes + self.down_bytes

    @property
    def stride(self) -> int:
        """Stored distance from one blob to the next."""
        return -(-self.blob_bytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Tensor:
    """A dense tensor of the model: GGUF name, row-major shape, storage format."""

    name: str
    shape: tuple[int, ...]
    format: str
    num_bytes: int


@dataclass(frozen=True)
class PackIndex:
    """All that a plan needs to know of a model's files."""

    name: str
    pack_id: str  # xxh3-128 hex of the sources; "declared" where there are no weights
    geometry: Geometry
    layers: tuple[LayerExperts, ...]
    dense: tuple[Tensor, ...]  # without the n-gram table
    ngram: Tensor | None
    profile_id: str = ""  # xxh3-64 hex of the expert profile; "" means expert id, then layer
    heat: tuple[float, ...] = ()  # of the profile: how often a layer's experts were chosen, hottest first; empty: not counted
    notes: tuple[str, ...] = ()  # tensors seen and not used, fits and estimates

    def offset(self, layer: int, expert: int) -> int:
        """Where the blob starts in experts.bin; a plain int, so that an id from a small numpy array never wraps the product."""
        at = self.layers[layer]
        return at.offset + int(expert) * at.stride

    @property
    def experts_bytes(self) -> int:
        """Payload of all experts."""
        return sum(at.blob_bytes for at in self.layers) * self.geometry.num_experts

    @property
    def experts_file_bytes(self) -> int:
        """Size of experts.bin: all experts at stored stride."""
        return sum(at.stride for at in self.layers) * self.geometry.num_experts

    @property
    def max_blob_bytes(self) -> int:
        return max(at.blob_bytes for at in self.layers)

    @property
    def dense_bytes(self) -> int:
        return sum(t.num_bytes for t in self.dense)
