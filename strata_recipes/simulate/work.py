"""Operations and bytes of a layer's halves, from a geometry and what its tensors weigh. Knows no rates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from strata_recipes.pack.index import Geometry, PackIndex
from strata_recipes.pack.layout import TOKEN_EMBEDDING
from strata_recipes.plan.budget import F32_BYTES, kv_cell_bytes

OUTPUT = "output"  # the head's tensors are read once a prompt and once a token
SAMPLER_OPS = 4  # a logit: compare, scale, exponential, sum


@dataclass(frozen=True)
class LayerWork:
    """One layer; bytes as stored."""

    attention: bool
    values: int  # dense weights: two operations each a token
    stored_bytes: int
    blob_bytes: int
    stride: int


@dataclass(frozen=True)
class Work:
    """A model's layers and head."""

    g: Geometry
    layers: tuple[LayerWork, ...]
    blocks: tuple[tuple[int, tuple[LayerWork, ...]], ...]  # the layers again: so many times these in a row
    head_values: int
    head_bytes: int

    def mixer_ops(self, layer: LayerWork, start: int, stop: int) -> float:
        """Of tokens start <= t < stop: weights, and what attention or the recurrent state takes."""
        g, tokens = self.g, stop - start
        if not layer.attention:
            # decay, read, error, update and output of a state matrix a head: two operations a value each
            return tokens * (2.0 * layer.values + 8.0 * g.gdn_value_heads * g.gdn_head_dim**2)
        scores = 2.0 * g.indexer_heads * g.indexer_dim / g.index_block * _sum(start, stop)
        selected = 4.0 * g.query_heads * g.head_dim * (_sum_capped(stop, g.index_budget) - _sum_capped(start, g.index_budget))
        return tokens * 2.0 * layer.values + scores + selected

    def attention_bytes(self, layer: LayerWork, kv_format: str, context: int) -> int:
        """What one token's mixer reads besides weights: pooled index keys, selected keys and values; or the recurrent state."""
        g = self.g
        if not layer.attention:
            return 2 * g.gdn_value_heads * g.gdn_head_dim**2 * F32_BYTES
        return context // g.index_block * g.indexer_dim * F32_BYTES + min(context, g.index_budget) * kv_cell_bytes(g, kv_format)

    def far_kv_bytes(self, layer: LayerWork, kv_format: str, context: int, resident: int | None) -> float:
        """Of the selected keys and values those of tokens after the `resident` first ones, were all tokens selected alike."""
        if not layer.attention or resident is None or resident >= context:
            return 0.0
        return min(context, self.g.index_budget) * kv_cell_bytes(self.g, kv_format) * (1 - resident / context)

    def expert_ops(self, tokens: float) -> float:
        """Of a layer's chosen experts."""
        g = self.g
        return tokens * g.top_k * 6.0 * g.hidden * g.expert_width

    def token_ops(self) -> float:
        """Operations a token up to the head, attention's context left out."""
        return sum(2.0 * layer.values for layer in self.layers) + len(self.layers) * self.expert_ops(1)

    @property
    def stride_bytes(self) -> int:
        """Stored bytes of one expert id in every layer."""
        return sum(layer.stride for layer in self.layers)


def work_of(pack: PackIndex) -> Work:
    g = pack.geometry
    values, stored = [0] * g.num_layers, [0] * g.num_layers
    head = [0, 0]
    for tensor in pack.dense:
        count = math.prod(tensor.shape)
        if tensor.name.startswith("blk."):
            layer = int(tensor.name.split(".")[1])
            values[layer] += count
            stored[layer] += tensor.num_bytes
        elif tensor.name != TOKEN_EMBEDDING:
            head[0] += count
            head[1] += tensor.num_bytes
    layers = tuple(LayerWork(g.is_attention(i), values[i], stored[i], at.blob_bytes, at.stride) for i, at in enumerate(pack.layers))
    return Work(g, layers, tuple(_blocks(layers, g.attention_interval)), head[0], head[1])


def _blocks(layers: tuple[LayerWork, ...], size: int) -> list[tuple[int, tuple[LayerWork, ...]]]:
    """Runs of alike blocks of `size` layers."""
    found: list[tuple[int, tuple[LayerWork, ...]]] = []
    for i in range(0, len(layers), size):
        block = layers[i : i + size]
        if found and found[-1][1] == block:
            found[-1] = (found[-1][0] + 1, block)
        else:
            found.append((1, block))
    return found


def _sum(start: int, stop: int) -> float:
    """Of the positions start <= p < stop."""
    return (stop - start) * (start + stop - 1) / 2.0


def _sum_capped(stop: int, cap: int) -> float:
    """Of min(p + 1, cap) for positions p < stop: what attention selects."""
    whole = min(stop, cap)
    return whole * (whole + 1) / 2.0 + (stop - whole) * float(cap)
