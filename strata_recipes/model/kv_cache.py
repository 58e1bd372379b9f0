"""What a sequence carries from span to span: KV cells, index blocks, delta net and convolution states, n-gram history.

Allocated whole for the longest context, so that a plan can count it; plan/budget.py gives the same bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels_numba.kv_formats import KvFormat
from strata_recipes.errors import ModelError
from strata_recipes.model.kv_cells import Cells, Places, empty_cells, kv_format, near_cells
from strata_recipes.pack.index import Geometry

_ALIGNMENT = 256  # bytes, of every tensor


@dataclass(frozen=True)
class AttentionState:
    """One QSA layer."""

    keys: Cells
    values: Cells
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


class SequenceState:
    """All states of one sequence. Each layer counts its own tokens: in layer-major order they advance apart."""

    def __init__(self, g: Geometry, kv: str, max_context: int, places: Places | None = None, *, shared: bool = False) -> None:
        """`shared`: all layers of a kind have one state between them, for passes whose values do not matter."""
        self.max_context = max_context
        form, places = kv_format(kv), places or Places()
        linear = [layer for layer in range(g.num_layers) if not g.is_attention(layer)]
        attention, delta = (layers[:1] if shared else layers for layers in (list(g.attention_layers), linear))
        pieces = _pieces(g, form, max_context, places, len(attention), len(delta))
        self.attention = {layer: _attention(g, form, max_context, places, pieces) for layer in attention}
        self.delta = {layer: _delta(g, pieces) for layer in delta}
        if shared:
            for layer in g.attention_layers[1:]:
                self.attention[layer] = self.attention[attention[0]]
            for layer in linear[1:]:
                self.delta[layer] = self.delta[delta[0]]
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
        parts: list[Tensor | Cells] = [part for state in states for part in vars(state).values()]
        return sum(part.num_bytes if isinstance(part, Cells) else part.nbytes for part in parts)

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
        self.delta_writes = {}
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


def _padded(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> int:
    return -(-math.prod(shape) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT


def _index_shapes(g: Geometry, max_context: int) -> tuple[tuple[int, ...], ...]:
    """Of index blocks and their pending keys."""
    return (-(-max_context // g.index_block), g.indexer_dim), (g.index_block, g.indexer_dim)


def _delta_shapes(g: Geometry) -> tuple[tuple[int, ...], ...]:
    channels = (2 * g.gdn_key_heads + g.gdn_value_heads) * g.gdn_head_dim
    return (g.gdn_conv - 1, channels), (g.gdn_value_heads, g.gdn_head_dim, g.gdn_head_dim)


def _ngram_shape(g: Geometry) -> tuple[int, ...]:
    return (g.ngram_conv - 1) * g.ngram_size, g.streams * g.hidden


def _pieces(g: Geometry, form: KvFormat, max_context: int, places: Places, attention: int, delta: int) -> _Pieces:
    """Memory for so many layers of each kind, but for cells that lie in RAM beside a card."""
    cells = near_cells(form, g.kv_heads, max_context, g.head_dim, places)
    num_bytes = attention * (2 * _padded(*cells) + sum(_padded(shape) for shape in _index_shapes(g, max_context)))
    num_bytes += delta * sum(_padded(shape) for shape in _delta_shapes(g))
    return _Pieces(num_bytes + len(g.ngram_layers) * _padded(_ngram_shape(g)), places.device)


def _attention(g: Geometry, form: KvFormat, max_context: int, places: Places, pieces: _Pieces) -> AttentionState:
    keys, values = (empty_cells(form, g.kv_heads, max_context, g.head_dim, places, pieces.cut) for _ in range(2))
    blocks, pending = (pieces.cut(shape) for shape in _index_shapes(g, max_context))
    return AttentionState(keys, values, blocks, pending)


def _delta(g: Geometry, pieces: _Pieces) -> DeltaState:
    conv, heads = _delta_shapes(g)
    return DeltaState(pieces.cut(conv).zero_(), pieces.cut(heads).zero_())


def _ngram(g: Geometry, pieces: _Pieces) -> NgramState:
    history = torch.full((g.ngram_size - 1,), g.ngram_eos, dtype=torch.int64)
    return NgramState(history, pieces.cut(_ngram_shape(g)).zero_())
