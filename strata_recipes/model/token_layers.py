"""A few tokens of one sequence through the layers, as calls of small kernels on buffers that stay: what a graph can capture.

Equal to qwen4_exp's halves up to the order of sums; the same bits for a row whatever rows come with it. Knows no tier: it reads
an expert at the address that a table gives, and leaves out those that have none.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kernels_numba.endings import Gates, Mixed
from strata_recipes.model.hyper_connection import HyperConnection
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.projection import Projection
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.model.reply_buffers import ReplyBuffers
from strata_recipes.model.token_attention import TokenAttention
from strata_recipes.model.token_delta import TokenDelta
from strata_recipes.model.token_experts import TokenExperts
from strata_recipes.pack.index import PackIndex


class TokenLayers:
    """`ops`: the kernels (kernels_numba.gpu.token_ops), or their numpy truth. `table` int64 [layers, experts]: 0 where an expert has
    no address."""

    def __init__(
        self,
        ops: Any,
        model: Qwen4Exp,
        index: PackIndex,
        state: SequenceState,
        table: Tensor,
        buffers: ReplyBuffers,
    ) -> None:
        self.buffers = buffers
        self._model = model
        self._layers = [_Layer(ops, self.buffers, model, index, state, table, layer) for layer in range(model.geometry.num_layers)]
        self._last = _Read(ops, self.buffers, model.last, "no_strengths", model.geometry.norm_eps)
        self._head = Projection(ops, self.buffers, model.head)

    def begin(self) -> None:
        """Streams from the rows of the embedding, which lie in their buffer; nothing is to be injected yet."""
        b, g = self.buffers, self._model.geometry
        b["streams"].view(b.rows, g.streams, g.hidden).copy_(b["embedding"][:, None].expand(-1, g.streams, -1))
        b["block"].zero_()
        b["strengths"].zero_()
        b["nans"].zero_()

    def route(self, layer: int, stream: int) -> None:
        """The mixer half up to the choice of experts: what was left to inject is taken in first."""
        self._layers[layer].route(stream)

    def shared(self, layer: int, stream: int) -> None:
        """The shared expert, of the same input."""
        self._layers[layer].experts.shared(stream)

    def experts(self, layer: int, addresses: Tensor, stream: int) -> None:
        """The chosen experts that have an address [R * k]."""
        self.expert_inputs(layer, addresses, stream)
        self.expert_outputs(layer, addresses, stream)

    def expert_inputs(self, layer: int, addresses: Tensor, stream: int) -> None:
        """Their gate and up halves."""
        self._layers[layer].experts.inputs(addresses, stream)

    def expert_outputs(self, layer: int, addresses: Tensor, stream: int) -> None:
        """Their down halves, of these."""
        self._layers[layer].experts.outputs(addresses, stream)

    def combine(self, layer: int, stream: int) -> None:
        """Their sum, to be injected by what comes next."""
        self._layers[layer].experts.combine(stream)

    def logits(self, stream: int) -> None:
        """Of all rows."""
        self._last(stream)
        self._head(self.buffers["x"], self.buffers["logits"], stream)


class _Read:
    """What a hyper-connection reads: the last output injected, streams normed and mixed."""

    def __init__(self, ops: Any, buffers: ReplyBuffers, hyper: HyperConnection, strengths: str, eps: float) -> None:
        self._ops, self._b, self._eps = ops, buffers, eps
        self._norm = hyper.norm
        self._down, self._up = Projection(ops, buffers, hyper.down), Projection(ops, buffers, hyper.up)
        self._gates, self._mixed = Gates(buffers["act"], buffers[strengths], len(hyper.norm)), Mixed(buffers["normed"], buffers["x"])

    def __call__(self, stream: int) -> None:
        b = self._b
        self._ops.hyper_inject_norm(b["streams"], b["block"], b["strengths"], self._norm, self._eps, b["normed"], stream)
        self._down.to(self._gates, b["normed"], stream)
        self._up.to(self._mixed, b["act"], stream)


class _Layer:
    """One layer's two halves."""

    def __init__(
        self, ops: Any, buffers: ReplyBuffers, model: Qwen4Exp, index: PackIndex, state: SequenceState, table: Tensor, layer: int
    ) -> None:
        at, g = model.layers[layer], model.geometry
        self._ops, self._b, self._layer = ops, buffers, layer
        self._ngram, self._ngram_state = at.ngram, state.ngram.get(layer)
        self._ngram_input = Projection(ops, buffers, at.ngram.input) if at.ngram else None
        self._first = _Read(ops, buffers, at.before_mixer, "strengths", g.norm_eps)
        self._mixer: TokenAttention | TokenDelta
        if at.attention:
            self._mixer = TokenAttention(ops, buffers, at.attention, g, state.attention[layer])
        else:
            self._mixer = TokenDelta(ops, buffers, at.delta, g, state.delta[layer])
        self._second = _Read(ops, buffers, at.before_experts, "strengths", g.norm_eps)
        self.experts = TokenExperts(ops, buffers, at.router, at.shared, index.layers[layer], model.compute, table[layer])

    def route(self, stream: int) -> None:
        if self._ngram:
            self._add_ngrams(stream)
        self._first(stream)
        self._mixer(stream)
        self._second(stream)
        self.experts.route(self._b["routed"][self._layer], stream)

    def _add_ngrams(self, stream: int) -> None:
        """The last output is injected before the n-grams are added, and not once more."""
        b, ngram, state = self._b, self._ngram, self._ngram_state
        assert ngram is not None and state is not None and self._ngram_input is not None
        self._ops.hyper_inject_norm(b["streams"], b["block"], b["strengths"], self._first._norm, self._first._eps, b["normed"], stream)
        b["block"].zero_()
        rows = b[f"ngram_{self._layer}"]
        self._ngram_input(rows, b["ngram_products"], stream)
        for row in range(b.rows):  # one by one: torch's sums depend on how many rows there are
            one = slice(row, row + 1)
            b["streams"][one].copy_(ngram.add(b["streams"][one], b["ngram_products"][one], state))
