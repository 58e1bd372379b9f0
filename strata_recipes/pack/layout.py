"""The tensors of a qwen4_exp model and the layout of experts.bin, computed from a geometry. Opens nothing.

Names and shapes are those of the GGUF that the public converter writes.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels_numba.formats import FORMATS
from strata_recipes.pack.index import Geometry, LayerExperts, Tensor

TOKEN_EMBEDDING = "token_embd.weight"
NGRAM_TABLE = "per_layer_token_embd.weight"
EXPERT_PARTS = ("gate", "up", "down")


@dataclass(frozen=True)
class Wanted:
    """A tensor the model needs. `exact` ones (norms, biases, routers) stay in float however the rest is stored."""

    name: str
    shape: tuple[int, ...]
    exact: bool


def dense_wanted(g: Geometry) -> tuple[Wanted, ...]:
    """Every dense tensor of the model, without routed experts and n-gram table."""
    wide = g.streams * g.hidden
    top = [
        Wanted(TOKEN_EMBEDDING, (g.vocab, g.hidden), False),
        Wanted("output.weight", (g.vocab, g.hidden), False),
        Wanted("output_hc_norm.weight", (wide,), True),
        Wanted("output_hc_down.weight", (g.stream_rank, wide), False),
        Wanted("output_hc_up.weight", (wide, g.stream_rank), False),
    ]
    return tuple(top + [w for layer in range(g.num_layers) for w in layer_wanted(g, layer)])


def layer_wanted(g: Geometry, layer: int) -> list[Wanted]:
    """The dense tensors of one layer."""
    wide = g.streams * g.hidden
    found: list[tuple[str, tuple[int, ...], bool]] = []
    for half in ("attn", "ffn"):
        found += [
            (f"hc_{half}_norm.weight", (wide,), True),
            (f"hc_{half}_down.weight", (g.stream_rank, wide), False),
            (f"hc_{half}_up.weight", (wide, g.stream_rank), False),
            (f"hc_{half}_inject.weight", (g.streams, wide), False),
        ]
    found += _attention(g) if g.is_attention(layer) else _delta_net(g)
    found += [
        ("ffn_gate_inp.weight", (g.num_experts, g.hidden), True),
        ("ffn_gate_inp_shexp.weight", (g.hidden,), True),
        ("ffn_gate_shexp.weight", (g.shared_width, g.hidden), False),
        ("ffn_up_shexp.weight", (g.shared_width, g.hidden), False),
        ("ffn_down_shexp.weight", (g.hidden, g.shared_width), False),
    ]
    if layer in g.ngram_layers:
        found += _ngram(g)
    return [Wanted(f"blk.{layer}.{name}", shape, exact) for name, shape, exact in found]


def ngram_wanted(g: Geometry) -> Wanted | None:
    """The n-gram table; None for a model without one."""
    return Wanted(NGRAM_TABLE, (g.ngram_rows, g.ngram_width), False) if g.ngram_layers else None


def expert_shapes(g: Geometry) -> dict[str, tuple[int, int]]:
    """Rows and columns of one expert's gate, up and down."""
    return {"gate": (g.expert_width, g.hidden), "up": (g.expert_width, g.hidden), "down": (g.hidden, g.expert_width)}


def tensor(wanted: Wanted, format_name: str) -> Tensor:
    """A wanted tensor stored in a format; ValueError where the format's block does not divide its rows."""
    return Tensor(wanted.name, wanted.shape, format_name, tensor_bytes(wanted.shape, format_name))


def tensor_bytes(shape: tuple[int, ...], format_name: str) -> int:
    """Stored bytes of a row-major tensor."""
    rows = 1
    for size in shape[:-1]:
        rows *= size
    return rows * FORMATS[format_name].row_bytes(shape[-1] if shape else 1)


def layer_experts(g: Geometry, formats: list[tuple[str, str, str]]) -> tuple[LayerExperts, ...]:
    """The layers of experts.bin, layer-major, from (gate, up, down) formats a layer."""
    shapes, offset, layers = expert_shapes(g), 0, []
    for names in formats:
        gate, up, down = (tensor_bytes(shapes[part], name) for part, name in zip(EXPERT_PARTS, names, strict=True))
        layers.append(LayerExperts(*names, gate, up, down, offset))
        offset += layers[-1].stride * g.num_experts
    return tuple(layers)


def _attention(g: Geometry) -> list[tuple[str, tuple[int, ...], bool]]:
    query, kv = g.query_heads * g.head_dim, g.kv_heads * g.head_dim
    return [
        ("attn_q.weight", (2 * query, g.hidden), False),  # query and output gate per head
        ("attn_k.weight", (kv, g.hidden), False),
        ("attn_v.weight", (kv, g.hidden), False),
        ("attn_output.weight", (g.hidden, query), False),
        ("attn_q_norm.weight", (g.head_dim,), True),
        ("attn_k_norm.weight", (g.head_dim,), True),
        ("indexer.q_proj.weight", (g.indexer_heads * g.indexer_dim, g.hidden), True),
        ("indexer.k_proj.weight", (g.indexer_dim, g.hidden), True),
        ("indexer.q_norm.weight", (g.indexer_dim,), True),
        ("indexer.k_norm.weight", (g.indexer_dim,), True),
    ]


def _delta_net(g: Geometry) -> list[tuple[str, tuple[int, ...], bool]]:
    value = g.gdn_value_heads * g.gdn_head_dim
    mixed = 2 * g.gdn_key_heads * g.gdn_head_dim + value
    return [
        ("attn_qkv.weight", (mixed, g.hidden), False),
        ("attn_gate.weight", (value, g.hidden), False),
        ("ssm_alpha.weight", (g.gdn_value_heads, g.hidden), False),
        ("ssm_beta.weight", (g.gdn_value_heads, g.hidden), False),
        ("ssm_a", (g.gdn_value_heads,), True),
        ("ssm_dt.bias", (g.gdn_value_heads,), True),
        ("ssm_conv1d.weight", (mixed, g.gdn_conv), True),
        ("ssm_norm.weight", (g.gdn_head_dim,), True),
        ("ssm_out.weight", (g.hidden, value), False),
    ]


def _ngram(g: Geometry) -> list[tuple[str, tuple[int, ...], bool]]:
    wide = g.streams * g.hidden
    looked_up = (g.ngram_size - 1) * g.ngram_heads * g.ngram_width
    return [
        ("ple_key.weight", (wide, looked_up), False),
        ("ple_value.weight", (g.hidden, looked_up), False),
        ("ple_norm_key.weight", (wide,), True),
        ("ple_norm_query.weight", (wide,), True),
        ("ple_norm_conv.weight", (wide,), True),
        ("ple_conv1d.weight", (wide, g.ngram_conv), True),
    ]
