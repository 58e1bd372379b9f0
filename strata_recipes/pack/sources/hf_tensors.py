"""From Hugging Face parameters to the tensors of a pack: names, shapes, and the few rearrangements between them. Opens nothing.

G key heads, R value heads for each, D values a head: a checkpoint groups value heads by their key head (g0r0, g0r1, ..), a
pack has them tiled (g0r0, g1r0, ..). Norms are stored around zero there and around one here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata_recipes.pack.index import Geometry
from strata_recipes.pack.layout import Wanted

Array = NDArray[Any]
_BLOCK = re.compile(r"blk\.(\d+)\.(.*)\Z")


@dataclass(frozen=True)
class Conversion:
    """How one tensor comes about: the parameter, the shape it must have there, and what to do. `None`: bytes as they are."""

    parameter: str
    shape: tuple[int, ...]
    change: Callable[[Array, Geometry], Array] | None


def conversion(wanted: Wanted, g: Geometry) -> Conversion:
    """The way from a checkpoint to a dense tensor of the pack."""
    match = _BLOCK.match(wanted.name)
    if not match:
        parameter, change = _TOP[wanted.name]
        return Conversion(parameter, wanted.shape, change)
    parameter, change = _LAYER[match[2]]
    shape = wanted.shape
    if match[2].startswith("indexer.") and match[2].endswith("proj.weight"):
        shape = ((g.indexer_heads + 1) * g.indexer_dim, g.hidden)
    return Conversion(f"model.layers.{match[1]}.{parameter}", shape, change)


def _plus_one(values: Array, g: Geometry) -> Array:
    return values + np.float32(1)


def _minus_exp(values: Array, g: Geometry) -> Array:
    # exp in double, so that the rounded result does not depend on a library's float32 exp
    return _tile_heads(-np.exp(values.astype(np.float64)).astype(np.float32), g)


def _tile_heads(values: Array, g: Geometry) -> Array:
    """Rows of one or D values a head."""
    grouped = values.reshape(g.gdn_key_heads, g.gdn_value_heads // g.gdn_key_heads, -1)
    return np.ascontiguousarray(grouped.swapaxes(0, 1)).reshape(values.shape)


def _tile_value_rows(values: Array, g: Geometry) -> Array:
    """Rows of queries and keys stay, those of values are tiled: in_proj_qkv, and the channels of its convolution."""
    start = 2 * g.gdn_key_heads * g.gdn_head_dim
    return np.concatenate([values[:start], _tile_heads(values[start:], g)])


def _tile_columns(values: Array, g: Geometry) -> Array:
    rows, heads = len(values), (g.gdn_key_heads, g.gdn_value_heads // g.gdn_key_heads)
    return np.ascontiguousarray(values.reshape(rows, *heads, -1).swapaxes(1, 2)).reshape(rows, -1)


def _index_queries(values: Array, g: Geometry) -> Array:
    return values[: g.indexer_heads * g.indexer_dim]


def _index_key(values: Array, g: Geometry) -> Array:
    return values[g.indexer_heads * g.indexer_dim :]


_Rule = tuple[str, Callable[[Array, Geometry], Array] | None]
_TOP: dict[str, _Rule] = {
    "token_embd.weight": ("model.embed_tokens.weight", None),
    "output.weight": ("lm_head.weight", None),
    "output_hc_norm.weight": ("model.hyper_connection_mixer.hc_norm.weight", _plus_one),
    "output_hc_down.weight": ("model.hyper_connection_mixer.input_mix_weight_down.weight", None),
    "output_hc_up.weight": ("model.hyper_connection_mixer.input_mix_weight_up.weight", None),
}
_LAYER: dict[str, _Rule] = {
    "attn_qkv.weight": ("linear_attn.in_proj_qkv.weight", _tile_value_rows),
    "attn_gate.weight": ("linear_attn.in_proj_z.weight", _tile_heads),
    "ssm_alpha.weight": ("linear_attn.in_proj_a.weight", _tile_heads),
    "ssm_beta.weight": ("linear_attn.in_proj_b.weight", _tile_heads),
    "ssm_a": ("linear_attn.A_log", _minus_exp),
    "ssm_dt.bias": ("linear_attn.dt_bias", _tile_heads),
    "ssm_conv1d.weight": ("linear_attn.conv1d.weight", _tile_value_rows),
    "ssm_norm.weight": ("linear_attn.norm.weight", None),
    "ssm_out.weight": ("linear_attn.out_proj.weight", _tile_columns),
    "attn_q.weight": ("self_attn.q_proj.weight", None),
    "attn_k.weight": ("self_attn.k_proj.weight", None),
    "attn_v.weight": ("self_attn.v_proj.weight", None),
    "attn_output.weight": ("self_attn.o_proj.weight", None),
    "attn_q_norm.weight": ("self_attn.q_norm.weight", _plus_one),
    "attn_k_norm.weight": ("self_attn.k_norm.weight", _plus_one),
    "indexer.q_proj.weight": ("self_attn.indexer.index_qk_proj.weight", _index_queries),
    "indexer.k_proj.weight": ("self_attn.indexer.index_qk_proj.weight", _index_key),
    "indexer.q_norm.weight": ("self_attn.indexer.q_layernorm.weight", _plus_one),
    "indexer.k_norm.weight": ("self_attn.indexer.k_layernorm.weight", _plus_one),
    "ffn_gate_inp.weight": ("mlp.gate.weight", None),
    "ffn_gate_inp_shexp.weight": ("mlp.shared_expert_gate.weight", None),
    "ple_key.weight": ("ple.key_proj.weight", None),
    "ple_value.weight": ("ple.value_proj.weight", None),
    "ple_norm_key.weight": ("ple.norm_key.weight", _plus_one),
    "ple_norm_query.weight": ("ple.norm_query.weight", _plus_one),
    "ple_norm_conv.weight": ("ple.norm_conv.weight", _plus_one),
    "ple_conv1d.weight": ("ple.conv1d.weight", None),
}
for _part in ("gate", "up", "down"):
    _LAYER[f"ffn_{_part}_shexp.weight"] = (f"mlp.shared_expert.{_part}_proj.weight", None)
for _half, _name in (("attn", "attn_hyper_connection"), ("ffn", "mlp_hyper_connection")):
    _LAYER[f"hc_{_half}_norm.weight"] = (f"{_name}.hc_norm.weight", _plus_one)
    _LAYER[f"hc_{_half}_down.weight"] = (f"{_name}.input_mix_weight_down.weight", None)
    _LAYER[f"hc_{_half}_up.weight"] = (f"{_name}.input_mix_weight_up.weight", None)
    _LAYER[f"hc_{_half}_inject.weight"] = (f"{_name}.block_inject_weight.weight", None)
