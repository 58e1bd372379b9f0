"""A small seeded qwen4_exp made with transformers, and the same weights as an in-memory pack in GGUF's conventions.

The conversion here is written from the tensor map, apart from the package's own sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from transformers import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpForCausalLM

from strata_recipes.pack.index import Geometry, PackIndex
from strata_recipes.pack.layout import dense_wanted, layer_experts, ngram_wanted, tensor

ROTARY = 0.25
SMALL: dict[str, Any] = dict(
    vocab_size=96, hidden_size=48, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-6,
    linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=16, linear_value_head_dim=16, linear_conv_kernel_dim=4,
    num_experts=10, num_experts_per_tok=3, moe_intermediate_size=20, shared_expert_intermediate_size=24, max_position_embeddings=2048,
    hc_count=3, hc_lowrank=12, ple_layer_ids=[2], ple_embed_dim=48, ngram_size=3, heads_per_ngram=4, ngram_vocab_size_base=50,
    make_ngram_vocab_size_divisible_by=16, indexer_n_heads=8, indexer_kv_heads=1, indexer_head_dim=24, indexer_budget=32,
    indexer_compress_ratio=4, output_gate_type="sigmoid", eos_token_id=2, pad_token_id=0, initializer_range=0.15,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": ROTARY, "mrope_section": [2, 1, 1]},
)  # fmt: skip


def make_model(seed: int = 0, **changes: Any) -> Qwen4ExpForCausalLM:
    """Random weights everywhere, norms and convolutions included, so that nothing is hidden by a zero or a one."""
    torch.manual_seed(seed)
    model = Qwen4ExpForCausalLM(Qwen4ExpTextConfig(**{**SMALL, **changes}))
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "norm" in name:
                value.copy_(value + 0.2 * torch.randn_like(value))
            elif "conv1d" in name or "dt_bias" in name:
                value.copy_(0.4 * torch.randn_like(value))
    return model.eval()


@torch.no_grad()
def oracle(model: Qwen4ExpForCausalLM, ids: Sequence[int]) -> np.ndarray:
    return model(torch.as_tensor(np.asarray(ids)[None])).logits[0].numpy()


def geometry(config: Qwen4ExpTextConfig, model: Qwen4ExpForCausalLM) -> Geometry:
    layers = tuple(i - 1 for i in config.ple_layer_ids)
    hashes = [model.model.layers[i].ple.ple_embedding for i in layers]
    tables = np.cumsum([0] + [h.ngram_embedding.weight.shape[0] for h in hashes]).tolist()  # one table after the other
    return Geometry(
        num_layers=config.num_hidden_layers, hidden=config.hidden_size, vocab=config.vocab_size, context_length=2048,
        norm_eps=config.rms_norm_eps, attention_interval=4, gdn_key_heads=config.linear_num_key_heads,
        gdn_value_heads=config.linear_num_value_heads, gdn_head_dim=config.linear_key_head_dim, gdn_conv=config.linear_conv_kernel_dim,
        query_heads=config.num_attention_heads, kv_heads=config.num_key_value_heads, head_dim=config.head_dim,
        rotary_dim=int(config.head_dim * ROTARY), rope_base=config.rope_parameters["rope_theta"], rope_sections=(2, 1, 1, 0),
        indexer_heads=config.indexer_n_heads, indexer_dim=config.indexer_head_dim, index_block=config.indexer_compress_ratio,
        index_budget=config.indexer_budget, streams=config.hc_count, stream_rank=config.hc_lowrank, num_experts=config.num_experts,
        top_k=config.num_experts_per_tok, expert_width=config.moe_intermediate_size,
        shared_width=config.shared_expert_intermediate_size, ngram_layers=layers, ngram_size=config.ngram_size,
        ngram_heads=config.heads_per_ngram, ngram_width=config.ple_embed_dim // ((config.ngram_size - 1) * config.heads_per_ngram),
        ngram_conv=config.ple_conv_kernel_size, ngram_rows=tables[-1],
        ngram_eos=config.eos_token_id, ngram_multipliers=tuple(int(v) for h in hashes for v in h.layer_multipliers),
        ngram_offsets=tuple(int(v) + first for h, first in zip(hashes, tables[:-1], strict=True) for v in h.ngram_heads_offsets),
        ngram_vocab_sizes=tuple(int(v) for h in hashes for v in h.ngram_heads_vocab_sizes), output_gate=config.output_gate_type,
    )  # fmt: skip


class MemoryPack:
    """What a Pack gives, all of it F32 in memory; also the experts' provider."""

    def __init__(self, model: Qwen4ExpForCausalLM) -> None:
        g = geometry(model.config, model)
        self._dense = dense_tensors(model, g)
        tables = [model.model.layers[i].ple.ple_embedding.ngram_embedding.weight for i in g.ngram_layers]
        self._table = torch.cat([*tables, torch.empty(0, g.ngram_width)]).detach().numpy()
        self._experts = [layer.mlp.experts for layer in model.model.layers]
        layers = layer_experts(g, [("F32", "F32", "F32")] * g.num_layers)
        wanted = ngram_wanted(g)
        dense = tuple(tensor(w, "F32") for w in dense_wanted(g))
        self.index = PackIndex("small", "memory", g, layers, dense, tensor(wanted, "F32") if wanted else None)

    def dense(self, name: str) -> tuple[np.ndarray, str, tuple[int, ...]]:
        values = self._dense[name]
        return values.reshape(-1).view(np.uint8), "F32", values.shape

    def ngram_rows(self, rows: np.ndarray) -> tuple[np.ndarray, str]:
        return self._table[rows].view(np.uint8), "F32"

    def blobs(self, layer: int, experts: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        for expert in experts:
            gate_up, down = self._experts[layer].gate_up_proj[expert], self._experts[layer].down_proj[expert]
            yield expert, torch.cat((gate_up.flatten(), down.flatten())).detach().numpy().view(np.uint8)


def dense_tensors(model: Qwen4ExpForCausalLM, g: Geometry) -> dict[str, np.ndarray]:
    found = {"token_embd.weight": model.model.embed_tokens.weight, "output.weight": model.lm_head.weight}
    found |= _connection(model.model.hyper_connection_mixer, "output_hc")
    for at, layer in enumerate(model.model.layers):
        parts = _connection(layer.attn_hyper_connection, "hc_attn") | _connection(layer.mlp_hyper_connection, "hc_ffn")
        parts |= _attention(layer.self_attn, g) if g.is_attention(at) else _delta_net(layer.linear_attn, g)
        parts |= _moe(layer.mlp) | (_ngram(layer.ple) if at in g.ngram_layers else {})
        found |= {f"blk.{at}.{name}": value for name, value in parts.items()}
    return {name: np.ascontiguousarray(value.detach().numpy()) for name, value in found.items()}


def _connection(hc: Any, name: str) -> dict[str, torch.Tensor]:
    found = {
        f"{name}_norm.weight": 1 + hc.hc_norm.weight,
        f"{name}_down.weight": hc.input_mix_weight_down.weight,
        f"{name}_up.weight": hc.input_mix_weight_up.weight,
    }
    return found | ({f"{name}_inject.weight": hc.block_inject_weight.weight} if hc.block_inject_weight is not None else {})


def _attention(attn: Any, g: Geometry) -> dict[str, torch.Tensor]:
    index, rows = attn.indexer, g.indexer_heads * g.indexer_dim
    names = {"q": "q", "k": "k", "v": "v", "output": "o"}
    found = {f"attn_{ours}.weight": getattr(attn, f"{theirs}_proj").weight for ours, theirs in names.items()}
    return found | {
        "attn_q_norm.weight": 1 + attn.q_norm.weight,
        "attn_k_norm.weight": 1 + attn.k_norm.weight,
        "indexer.q_proj.weight": index.index_qk_proj.weight[:rows],
        "indexer.k_proj.weight": index.index_qk_proj.weight[rows:],
        "indexer.q_norm.weight": 1 + index.q_layernorm.weight,
        "indexer.k_norm.weight": 1 + index.k_layernorm.weight,
    }


def _delta_net(gdn: Any, g: Geometry) -> dict[str, torch.Tensor]:
    group, dim = g.gdn_value_heads // g.gdn_key_heads, g.gdn_head_dim
    keys = 2 * g.gdn_key_heads * dim

    def tiled(rows: torch.Tensor, size: int) -> torch.Tensor:
        """Value heads from key-head order (g0v0, g0v1, ..) to tiled order (g0v0, g1v0, ..)."""
        return rows.reshape(g.gdn_key_heads, group, size, -1).transpose(0, 1).reshape(rows.shape)

    def mixed(rows: torch.Tensor) -> torch.Tensor:
        return torch.cat((rows[:keys], tiled(rows[keys:], dim)))

    return {
        "attn_qkv.weight": mixed(gdn.in_proj_qkv.weight),
        "attn_gate.weight": tiled(gdn.in_proj_z.weight, dim),
        "ssm_alpha.weight": tiled(gdn.in_proj_a.weight, 1),
        "ssm_beta.weight": tiled(gdn.in_proj_b.weight, 1),
        "ssm_a": tiled(-gdn.A_log.exp(), 1),
        "ssm_dt.bias": tiled(gdn.dt_bias, 1),
        "ssm_conv1d.weight": mixed(gdn.conv1d.weight.squeeze(1)),
        "ssm_norm.weight": gdn.norm.weight,
        "ssm_out.weight": tiled(gdn.out_proj.weight.t().contiguous(), dim).t(),
    }


def _moe(moe: Any) -> dict[str, torch.Tensor]:
    found = {f"ffn_{part}_shexp.weight": getattr(moe.shared_expert, f"{part}_proj").weight for part in ("gate", "up", "down")}
    return found | {"ffn_gate_inp.weight": moe.gate.weight, "ffn_gate_inp_shexp.weight": moe.shared_expert_gate.weight.view(-1)}


def _ngram(ple: Any) -> dict[str, torch.Tensor]:
    found = {f"ple_norm_{part}.weight": 1 + getattr(ple, f"norm_{part}").weight for part in ("key", "query", "conv")}
    return found | {
        "ple_key.weight": ple.key_proj.weight,
        "ple_value.weight": ple.value_proj.weight,
        "ple_conv1d.weight": ple.conv1d.weight.squeeze(1),
    }
