"""What a sequence carries from span to span: KV cells, index blocks, delta net and convolution states, n-gram history.

Allocated whole for the longest context, so that a plan can count it; plan/budget.py gives the same bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from strata_recipes.errors import ConfigError, ModelError
from strata_recipes.pack.index import Geometry

_ALIGNMENT = 256  # bytes, of every tensor
KV_DTYPES = {"fp32": torch.float32, "fp16": torch.float16}


@dataclass(frozen=True)
class AttentionState:
    """One QSA layer. Cells are written before they are read, so none is zeroed."""

    keys: Tensor  # [kv heads, max context, head dim], in the KV format
    values: Tensor
    blocks: Tensor  # [blocks of the max context, indexer dim]: pooled, normed and rotated keys of whole blocks
    pending: Tensor  # [index block, indexer dim]: raw keys of the block that is not whole yet


@dataclass(frozen=True)
class DeltaState:
    """One GDN layer."""

    conv: Tensor  # [taps - 1, channels]: the convolution's last inputs
    delta: Tensor  # [value heads, key dim, value dim]


@dataclass(frozen=True)
class DeltaWrite:
    """What one token wrote to a delta net's state, V value heads: enough to write it again."""

    key: Tensor  # [1, V, D]
    value: Tensor  # [1, V, D]
    log_decay: Tensor  # [1, V]
    beta: Tensor  # [1, V]


@dataclass(frozen=True)
class NgramState:
    """The n-gram embedding of one layer."""

    history: Tensor  # int64 [n - 1], on the CPU, where ids are hashed: the last ids, end-of-text before the first
    conv: Tensor  # [(taps - 1) * n, streams * hidden]


def kv_dtype(kv_format: str) -> torch.dtype:
    """The cells' type; ConfigError for a format that can be planned only."""
    if kv_format not in KV_DTYPES:
        raise ConfigError(f"kv={kv_format} can be planned but not run: use one of kv={', kv='.join(KV_DTYPES)}")
    return KV_DTYPES[kv_format]


class SequenceState:
    """All states of one sequence. Each layer counts its own tokens: in layer-major order they advance apart."""

    def __init__(self, g: Geometry, kv_format: str, max_context: int, device: torch.device | None = None) -> None:
        self.max_context = max_context
        dtype = kv_dtype(kv_format)
        pieces = _pieces(g, dtype, max_context, device)
        self.attention = {layer: _attention(g, dtype, max_context, pieces) for layer in g.attention_layers}
        self.delta = {layer: _delta(g, pieces) for layer in range(g.num_layers) if not g.is_attention(layer)}
        self.ngram = {layer: _ngram(g, pieces) for layer in g.ngram_layers}
        self.delta_writes: dict[int, list[DeltaWrite]] = {}  # by layer: where there is a list, each single token joins it
        self._tokens = [0] * g.num_layers
        self._end_of_text = g.ngram_eos

    @property
    def num_layers(self) -> int:
        return len(self._tokens)

    @property
    def num_tokens(self) -> int:
        """Tokens that every layer has read."""
        return min(self._tokens)

    @property
    def num_bytes(self) -> int:
        """Bytes of its tensors."""
        states: list[AttentionState | DeltaState | NgramState] = [*self.attention.values(), *self.delta.values(), *self.ngram.values()]
        return sum(tensor.nbytes for state in states for tensor in vars(state).values())

    def advance(self, layer: int, start: int, num_tokens: int) -> None:
        """Note that `layer` reads tokens start .. start + num_tokens; ModelError where they do not fit in the context."""
        assert start == self._tokens[layer], f"layer {layer} has read {self._tokens[layer]} tokens, the span starts at {start}"
        if start + num_tokens > self.max_context:
            span = f"tokens {start} to {start + num_tokens} of the sequence"
            raise ModelError(f"{span} pass its context of {self.max_context} tokens: raise kv.max_context")
        self._tokens[layer] = start + num_tokens

    def reset(self) -> None:
        """An empty sequence again, in the same memory."""
        for delta in self.delta.values():
            delta.conv.zero_()
            delta.delta.zero_()
        for ngram in self.ngram.values():
            ngram.history.fill_(self._end_of_text)
            ngram.conv.zero_()
        self._tokens = [0] * self.num_layers

    def rewind(self, num_tokens: int) -> None:
        """Every layer has read `num_tokens` tokens, fewer than now: what they overwrote has been put back."""
        assert 0 <= num_tokens <= self.num_tokens, f"the sequence has {self.num_tokens} tokens, {num_tokens} are to stay"
        self._tokens = [num_tokens] * self.num_layers


class _Pieces:
    """Tensors cut out of one piece of memory: a card rounds up each allocation, up to 2 MiB for every layer's keys."""

    def __init__(self, num_bytes: int, device: torch.device | None) -> None:
        self._memory = torch.empty(num_bytes, dtype=torch.uint8, device=device)
        self._end = 0

    def cut(self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        begin, self._end = self._end, self._end + _padded(shape, dtype)
        return self._memory[begin : begin + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)


def _padded(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return -(-math.prod(shape) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT


def _attention_shapes(g: Geometry, max_context: int) -> tuple[tuple[int, ...], ...]:
    """Of keys and values, and of index blocks and their pending keys."""
    cells = (g.kv_heads, max_context, g.head_dim)
    return cells, (-(-max_context // g.index_block), g.indexer_dim), (g.index_block, g.indexer_dim)


def _delta_shapes(g: Geometry) -> tuple[tuple[int, ...], ...]:
    channels = (2 * g.gdn_key_heads + g.gdn_value_heads) * g.gdn_head_dim
    return (g.gdn_conv - 1, channels), (g.gdn_value_heads, g.gdn_head_dim, g.gdn_head_dim)


def _ngram_shape(g: Geometry) -> tuple[int, ...]:
    return (g.ngram_conv - 1) * g.ngram_size, g.streams * g.hidden


def _pieces(g: Geometry, dtype: torch.dtype, max_context: int, device: torch.device | None) -> _Pieces:
    """Memory for all layers."""
    attention, num_attention = _attention_shapes(g, max_context), len(g.attention_layers)
    floats = num_attention * sum(_padded(shape, torch.float32) for shape in attention[1:])
    floats += (g.num_layers - num_attention) * sum(_padded(shape, torch.float32) for shape in _delta_shapes(g))
    floats += len(g.ngram_layers) * _padded(_ngram_shape(g), torch.float32)
    return _Pieces(2 * num_attention * _padded(attention[0], dtype) + floats, device)


def _attention(g: Geometry, dtype: torch.dtype, max_context: int, pieces: _Pieces) -> AttentionState:
    cells, blocks, pending = _attention_shapes(g, max_context)
    return AttentionState(pieces.cut(cells, dtype), pieces.cut(cells, dtype), pieces.cut(blocks), pieces.cut(pending))


def _delta(g: Geometry, pieces: _Pieces) -> DeltaState:
    conv, heads = _delta_shapes(g)
    return DeltaState(pieces.cut(conv).zero_(), pieces.cut(heads).zero_())


def _ngram(g: Geometry, pieces: _Pieces) -> NgramState:
    history = torch.full((g.ngram_size - 1,), g.ngram_eos, dtype=torch.int64)
    return NgramState(history, pieces.cut(_ngram_shape(g)).zero_())
