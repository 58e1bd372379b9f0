"""The whole model in float64 numpy, token by token: no tiers, no chunks, no torch. Ties go to the lower id.

Written from the model's definition, apart from strata_recipes/model; held against transformers' stored logits in test_oracle.py.
Vectors are one token's; S streams, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from strata_recipes.pack.index import Geometry

Floats = NDArray[np.float64]
Tensor = Callable[[str], Floats]


def logits(g: Geometry, weights: dict[str, Floats], ids: Sequence[int]) -> Floats:
    """[tokens, vocab] for a prompt."""
    return Oracle(g, weights).read(ids)


def greedy(g: Geometry, weights: dict[str, Floats], ids: Sequence[int], count: int) -> list[int]:
    """The best token, `count` times; on an end-of-text token it goes on."""
    oracle, tokens = Oracle(g, weights), list[int]()
    row = oracle.read(ids)[-1]
    for _ in range(count):
        tokens.append(int(row.argmax()))
        row = oracle.read(tokens[-1:])[-1]
    return tokens


@dataclass
class _Layer:
    """What one layer remembers of earlier tokens."""

    conv: list[Floats] = field(default_factory=list)
    delta: Floats | None = None
    keys: list[Floats] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)
    index: list[Floats] = field(default_factory=list)  # unpooled index keys
    ngram: list[Floats] = field(default_factory=list)


class Oracle:
    """One sequence."""

    def __init__(self, g: Geometry, weights: dict[str, Floats]) -> None:
        self._g, self._weights = g, weights
        self._layers = [_Layer() for _ in range(g.num_layers)]
        self._ids: list[int] = []
        self.chosen: list[list[list[int]]] = []  # [token][layer]: experts, best first

    def read(self, ids: Sequence[int]) -> Floats:
        return np.stack([self._token(int(token)) for token in ids])

    def _token(self, token: int) -> Floats:
        g, w = self._g, self._weights
        self._ids.append(token)
        self.chosen.append([])
        streams = np.tile(w["token_embd.weight"][token], (g.streams, 1))
        for layer in range(g.num_layers):
            streams = self._layer(layer, streams, lambda name, layer=layer: w[f"blk.{layer}.{name}"])
        return w["output.weight"] @ self._mix(streams, lambda name: w[name], "output_hc")[0]

    def _layer(self, layer: int, streams: Floats, w: Tensor) -> Floats:
        g, past = self._g, self._layers[layer]
        if layer in g.ngram_layers:
            streams = streams + self._ngram(streams, w, past)
        x, strengths = self._mix(streams, w, "hc_attn")
        mixed = self._attention(x, w, past) if g.is_attention(layer) else self._delta(x, w, past)
        streams = streams + strengths[:, None] * mixed
        x, strengths = self._mix(streams, w, "hc_ffn")
        return streams + strengths[:, None] * self._experts(x, w)

    def _mix(self, streams: Floats, w: Tensor, name: str) -> tuple[Floats, Floats]:
        normed = _rms(streams, w(f"{name}_norm.weight").reshape(streams.shape), self._g.norm_eps)
        down = w(f"{name}_down.weight") @ normed.reshape(-1) / self._g.streams
        mix = _sigmoid(w(f"{name}_up.weight") @ _silu(down)).reshape(streams.shape)
        inject = () if name == "output_hc" else w(f"{name}_inject.weight") @ normed.reshape(-1) / self._g.streams
        return (mix * normed).mean(0), 2 * _sigmoid(np.asarray(inject))

    def _experts(self, x: Floats, w: Tensor) -> Floats:
        g, scores = self._g, w("ffn_gate_inp.weight") @ x
        share = np.exp(scores - scores.max())
        best = np.argsort(-share, kind="stable")[: g.top_k]
        self.chosen[-1].append(best.tolist())
        shared = _mlp(x, *(w(f"ffn_{part}_shexp.weight") for part in ("gate", "up", "down")))
        out = _sigmoid(w("ffn_gate_inp_shexp.weight").reshape(-1) @ x) * shared
        for expert in best:
            parts = (w(f"ffn_{part}_exps.weight")[expert] for part in ("gate", "up", "down"))
            out = out + share[expert] / share[best].sum() * _mlp(x, *parts)
        return out

    def _delta(self, x: Floats, w: Tensor, past: _Layer) -> Floats:
        g, dim, keys = self._g, self._g.gdn_head_dim, self._g.gdn_key_heads * self._g.gdn_head_dim
        mixed = _conv(w("attn_qkv.weight") @ x, past.conv, w("ssm_conv1d.weight"), 1)
        q, k, v = (part.reshape(-1, dim) for part in np.split(mixed, [keys, 2 * keys]))
        q, k = (np.tile(part / np.sqrt((part**2).sum(-1, keepdims=True) + 1e-6), (len(v) // len(part), 1)) for part in (q, k))
        decay = np.exp(w("ssm_a") * np.logaddexp(0, w("ssm_alpha.weight") @ x + w("ssm_dt.bias")))
        beta = _sigmoid(w("ssm_beta.weight") @ x)
        state = np.zeros((len(v), dim, dim)) if past.delta is None else past.delta
        state = state * decay[:, None, None]
        correction = (v - np.einsum("hk,hkv->hv", k, state)) * beta[:, None]
        past.delta = state = state + k[:, :, None] * correction[:, None]
        read = np.einsum("hk,hkv->hv", q * dim**-0.5, state)
        gate = w("attn_gate.weight") @ x
        gate = _sigmoid(gate) if g.output_gate == "sigmoid" else _silu(gate)
        return w("ssm_out.weight") @ (_rms(read, w("ssm_norm.weight"), g.norm_eps).reshape(-1) * gate)

    def _attention(self, x: Floats, w: Tensor, past: _Layer) -> Floats:
        g, at = self._g, len(past.keys)
        q, gate = (w("attn_q.weight") @ x).reshape(g.query_heads, 2, g.head_dim).transpose(1, 0, 2)
        q = self._rotated(_rms(q, w("attn_q_norm.weight"), g.norm_eps), at) * g.head_dim**-0.5
        k = (w("attn_k.weight") @ x).reshape(g.kv_heads, g.head_dim)
        past.keys.append(self._rotated(_rms(k, w("attn_k_norm.weight"), g.norm_eps), at))
        past.values.append((w("attn_v.weight") @ x).reshape(g.kv_heads, g.head_dim))
        past.index.append(w("indexer.k_proj.weight") @ x)
        seen = self._seen(x, w, past, at)
        out = np.empty_like(q)
        for head in range(g.query_heads):
            kv = head // (g.query_heads // g.kv_heads)
            scores = np.array([past.keys[p][kv] @ q[head] for p in seen])
            share = np.exp(scores - scores.max())
            out[head] = share @ np.array([past.values[p][kv] for p in seen]) / share.sum()
        return w("attn_output.weight") @ (out * _sigmoid(gate)).reshape(-1)

    def _seen(self, x: Floats, w: Tensor, past: _Layer, at: int) -> list[int]:
        """Positions that a query at `at` reads: all, or its best blocks and the tokens after the last whole one."""
        g, whole, most = self._g, (at + 1) // self._g.index_block, self._g.index_budget // self._g.index_block
        blocks = list(range(whole))
        if whole > most:
            heads = (w("indexer.q_proj.weight") @ x).reshape(g.indexer_heads, g.indexer_dim)
            query = self._rotated(_rms(heads, w("indexer.q_norm.weight"), g.norm_eps), at)
            keys = [np.mean(past.index[b * g.index_block : (b + 1) * g.index_block], axis=0) for b in blocks]
            normed = [_rms(key, w("indexer.k_norm.weight"), g.norm_eps) for key in keys]
            scores = [np.maximum(query @ self._rotated(key, b * g.index_block), 0).sum() for b, key in enumerate(normed)]
            blocks = sorted(np.argsort(-np.array(scores), kind="stable")[:most].tolist())
        inside = [b * g.index_block + i for b in blocks for i in range(g.index_block)]
        return inside + list(range(whole * g.index_block, at + 1))

    def _rotated(self, x: Floats, position: int) -> Floats:
        half = self._g.rotary_dim // 2
        # the model's own frequencies and angles are float32
        frequency = (1 / self._g.rope_base ** (np.arange(0, 2 * half, 2, dtype=np.float32) / np.float32(2 * half))).astype(np.float32)
        angle = (np.float32(position) * frequency).astype(np.float64)
        first, second = x[..., :half], x[..., half : 2 * half]
        turned = (first * np.cos(angle) - second * np.sin(angle), second * np.cos(angle) + first * np.sin(angle))
        return np.concatenate([*turned, x[..., 2 * half :]], axis=-1)

    def _ngram(self, streams: Floats, w: Tensor, past: _Layer) -> Floats:
        g = self._g
        looked_up = np.concatenate([self._weights["per_layer_token_embd.weight"][row] for row in self._rows()])
        key = _rms((w("ple_key.weight") @ looked_up).reshape(streams.shape), w("ple_norm_key.weight").reshape(streams.shape), g.norm_eps)
        query = _rms(streams, w("ple_norm_query.weight").reshape(streams.shape), g.norm_eps)
        match = (key * query).sum(-1, keepdims=True) / np.sqrt(g.hidden)
        match = np.sqrt(np.maximum(np.abs(match), 1e-6)) * np.sign(match)
        gated = _sigmoid(match) * (w("ple_value.weight") @ looked_up)
        normed = _rms(gated, w("ple_norm_conv.weight").reshape(streams.shape), g.norm_eps)
        return gated + _conv(normed.reshape(-1), past.ngram, w("ple_conv1d.weight"), g.ngram_size).reshape(streams.shape)

    def _rows(self) -> list[int]:
        """Table rows of the last n-grams, orders 2 to n; int64 products that wrap."""
        g, rows, cut = self._g, list[int](), False
        mixed = _int64(self._ids[-1] * g.ngram_multipliers[0])
        for shift in range(1, g.ngram_size):
            # before the first token lies end of text
            earlier = self._ids[-1 - shift] if len(self._ids) > shift else g.ngram_eos
            cut = cut or earlier == g.ngram_eos
            mixed ^= _int64((g.ngram_eos if cut else earlier) * g.ngram_multipliers[shift])
            first = (shift - 1) * g.ngram_heads
            rows += [mixed % g.ngram_vocab_sizes[h] + g.ngram_offsets[h] for h in range(first, first + g.ngram_heads)]
        return rows


def _int64(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _rms(x: Floats, weight: Floats, eps: float) -> Floats:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def _sigmoid(x: Floats) -> Floats:
    return (1 + np.tanh(x / 2)) / 2


def _silu(x: Floats) -> Floats:
    return x * _sigmoid(x)


def _mlp(x: Floats, gate: Floats, up: Floats, down: Floats) -> Floats:
    return down @ (_silu(gate @ x) * (up @ x))


def _conv(x: Floats, past: list[Floats], weight: Floats, dilation: int) -> Floats:
    """silu of the causal depthwise convolution; `past` holds every input so far."""
    past.append(x)
    taps, now = weight.shape[1], len(past) - 1
    back = [now - (taps - 1 - tap) * dilation for tap in range(taps)]
    return _silu(sum((weight[:, tap] * past[at] for tap, at in enumerate(back) if at >= 0), np.zeros_like(x)))
