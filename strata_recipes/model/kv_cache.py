"""What a sequence carries from span to span: KV cells, index blocks, delta net and convolution states, n-gram history.

Allocated whole for the longest context, so that a plan can count it; plan/budget.py gives the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels_numba.kv_formats import KvFormat
from strata_recipes.errors import ModelError
from strata_recipes.model.kv_cells import Cells, Places, empty_cells, kv_format
from strata_recipes.pack.index import Geometry


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
class NgramState:
    """The n-gram embedding of one layer."""

    history: Tensor  # int64 [n - 1], on the CPU, where ids are hashed: the last ids, end-of-text before the first
    conv: Tensor  # [(taps - 1) * n, streams * hidden]


class SequenceState:
    """All states of one sequence. Each layer counts its own tokens: in layer-major order they advance apart."""

    def __init__(self, g: Geometry, kv: str, max_context: int, places: Places | None = None) -> None:
        self.max_context = max_context
        form, places = kv_format(kv), places or Places()
        device = places.device
        self.attention = {layer: _attention(g, form, max_context, places) for layer in g.attention_layers}
        self.delta = {layer: _delta(g, device) for layer in range(g.num_layers) if not g.is_attention(layer)}
        self.ngram = {layer: _ngram(g, device) for layer in g.ngram_layers}
        self._tokens = [0] * g.num_layers

    @property
    def num_tokens(self) -> int:
        """Tokens that every layer has read."""
        return min(self._tokens)

    @property
    def num_bytes(self) -> int:
        """Allocated bytes."""
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


def _attention(g: Geometry, form: KvFormat, max_context: int, places: Places) -> AttentionState:
    return AttentionState(
        empty_cells(form, g.kv_heads, max_context, g.head_dim, places),
        empty_cells(form, g.kv_heads, max_context, g.head_dim, places),
        torch.empty(-(-max_context // g.index_block), g.indexer_dim, device=places.device),
        torch.empty(g.index_block, g.indexer_dim, device=places.device),
    )


def _delta(g: Geometry, device: torch.device | None) -> DeltaState:
    channels = (2 * g.gdn_key_heads + g.gdn_value_heads) * g.gdn_head_dim
    heads = g.gdn_value_heads, g.gdn_head_dim, g.gdn_head_dim
    return DeltaState(torch.zeros(g.gdn_conv - 1, channels, device=device), torch.zeros(heads, device=device))


def _ngram(g: Geometry, device: torch.device | None) -> NgramState:
    history = torch.full((g.ngram_size - 1,), g.ngram_eos, dtype=torch.int64)
    return NgramState(history, torch.zeros((g.ngram_conv - 1) * g.ngram_size, g.streams * g.hidden, device=device))
