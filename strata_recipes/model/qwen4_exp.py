"""The qwen4_exp model, one layer half over one token span at a time. Knows no tier, no schedule and no config.

T tokens, S streams, H hidden. The dense weights are held here; routed experts come from outside, between `mixer` and `combine`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from kernels_numba.formats import FORMATS
from strata_recipes.errors import ConfigError
from strata_recipes.model.arithmetic import COMPUTE
from strata_recipes.model.dense_slabs import Dense
from strata_recipes.model.gdn import GatedDeltaNet
from strata_recipes.model.hyper_connection import HyperConnection, inject
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.kv_cells import Host, Places, host_bytes, kv_format
from strata_recipes.model.mixer_out import MixerOut
from strata_recipes.model.ple import NgramEmbedding
from strata_recipes.model.qsa import SelectedAttention
from strata_recipes.model.rope import Rope
from strata_recipes.model.router import Router
from strata_recipes.model.shared_expert import SharedExpert
from strata_recipes.model.stored_matrix import Workspace
from strata_recipes.model.weights import CPU, PackLike, Weights
from strata_recipes.model.widen import widen
from strata_recipes.pack.index import Geometry
from strata_recipes.pack.layout import TOKEN_EMBEDDING
from strata_recipes.plan.budget import matmul_bytes


class Layer:
    """One layer's dense parts."""

    def __init__(self, pack: PackLike, weights: Weights, g: Geometry, layer: int, rope: Rope) -> None:
        self.ngram = NgramEmbedding(pack, weights, g, g.ngram_layers.index(layer)) if layer in g.ngram_layers else None
        self.before_mixer = HyperConnection(weights, "hc_attn", g)
        self.attention = SelectedAttention(weights, g, rope) if g.is_attention(layer) else None
        self.delta = None if self.attention else GatedDeltaNet(weights, g)
        self.before_experts = HyperConnection(weights, "hc_ffn", g)
        self.router = Router(weights, g, layer)
        self.shared = SharedExpert(weights)


class Qwen4Exp:
    """The dense half of the model, on the CPU, where its weights are loaded here, or on a card, where `dense` has them.

    compute: f32, bf16, f16 or q8. kv: fp32, fp16, int8 or q4_0. `threads` is what the session told torch to use: kept beside the
    model because the bits of torch's matmuls depend on it.
    """

    def __init__(
        self, pack: PackLike, compute: str, kv: str, max_context: int, threads: int, device: torch.device = CPU, dense: Dense | None = None
    ) -> None:
        if compute not in COMPUTE:
            raise ConfigError(f"compute={compute} is not one of {', '.join(COMPUTE)}")
        kv_format(kv)  # refused before any weight is widened
        self.geometry = pack.index.geometry
        self.compute, self.kv, self.max_context, self.threads = compute, kv, max_context, threads
        self.device = device
        self._embedding, self._embedding_format, _ = pack.dense(TOKEN_EMBEDDING)
        self._pack, self._dense, self._workspace = pack, dense, None if dense is None else Workspace(matmul_bytes(pack.index), device)
        self._rope = Rope(self.geometry.rotary_dim, self.geometry.rope_base, device)
        self._build()

    def _build(self) -> None:
        """The layers over their weights, wherever those are now."""
        g, placed = self.geometry, None if self._dense is None else self._dense.placed
        weights = Weights(self._pack, self.compute, placed=placed, workspace=self._workspace)
        self.layers = [Layer(self._pack, weights.layer(layer), g, layer, self._rope) for layer in range(g.num_layers)]
        self.last = HyperConnection(weights, "output_hc", g, injects=False)
        self.head = weights.matrix("output.weight")

    def prompt_starts(self) -> None:
        """Dense weights are where a prompt wants them."""
        self._phase(reply=False)

    def reply_starts(self) -> None:
        """The same for a reply, once what the prompt kept is given back."""
        self._phase(reply=True)

    def _phase(self, reply: bool) -> None:
        if self._dense is not None and self._dense.moves(reply):
            self.layers = []  # they hold the memory that is given back
            self._dense.move()
            self._build()

    def new_state(
        self, max_context: int | None = None, resident: int | None = None, host: Host = host_bytes, *, shared: bool = False
    ) -> SequenceState:
        """An empty sequence, allocated for `max_context` tokens (None: the model's).

        `resident`: tokens whose keys and values lie on the device (None: all); `host` gives RAM for the others'.
        `shared`: one state for all layers of a kind.
        """
        context = self.max_context if max_context is None else max_context
        return SequenceState(self.geometry, self.kv, context, Places(self.device, resident, host), shared=shared)

    @torch.no_grad()
    def embed(self, ids: Tensor | np.ndarray) -> Tensor:
        """ids [T] -> streams [T, S*H]: each token's embedding in every stream."""
        return self.embedding(ids).to(self.device).repeat(1, self.geometry.streams)

    def embedding(self, ids: Tensor | np.ndarray) -> Tensor:
        """ids [T] -> rows [T, H] on the CPU, widened as they are asked for."""
        rows, g = np.asarray(ids, dtype=np.int64), self.geometry
        if rows.size and not 0 <= rows.min() <= rows.max() < g.vocab:
            at = int(np.flatnonzero((rows < 0) | (rows >= g.vocab))[0])
            what = f"token id {rows[at]} at position {at} is outside the model's vocabulary of {g.vocab}"
            raise ConfigError(f"{what}: encode the text with the model's own tokenizer")
        stored = self._embedding.reshape(g.vocab, FORMATS[self._embedding_format].row_bytes(g.hidden))
        values = torch.from_numpy(widen(stored[rows].reshape(-1), self._embedding_format))
        return values.view(-1, g.hidden)

    @torch.no_grad()
    def mixer(self, layer: int, streams: Tensor, ids: Tensor | np.ndarray, state: SequenceState, start: int) -> MixerOut:
        """All of a layer but its routed experts, for tokens start .. start + T; the layer's state moves on by T tokens."""
        at = self.layers[layer]
        if self._dense is not None:
            self._dense.use(layer)
        state.advance(layer, start, streams.shape[0])
        if at.ngram:
            streams = at.ngram(streams, torch.as_tensor(ids, dtype=torch.int64), state.ngram[layer])
        x, strengths = at.before_mixer(streams)
        if at.attention:
            mixed = at.attention(x, state.attention[layer], start)
        else:
            assert at.delta is not None
            mixed = at.delta(x, state.delta[layer], state.delta_writes.get(layer))
        streams = inject(streams, mixed, strengths)
        x, strengths = at.before_experts(streams)
        experts, weights = at.router(x, start)
        return MixerOut(streams, x, experts, weights, at.shared(x), strengths)

    @torch.no_grad()
    def combine(self, out: MixerOut) -> Tensor:
        """streams [T, S*H] with the experts' sum injected."""
        return inject(out.streams, out.acc, out.inject)

    @torch.no_grad()
    def warm_up_selection(self) -> None:
        """Ranks blocks for one query that has more of them than it may read: short prompts never do."""
        found = next((layer.attention for layer in self.layers if layer.attention), None)
        if found is not None:
            index = found.indexer
            index.select(torch.zeros(1, index.num_selected + 1, device=self.device), index.first_choice)

    @torch.no_grad()
    def logits(self, streams: Tensor) -> Tensor:
        """streams [n, S*H] after the last layer -> float32 [n, vocab]."""
        return self.head(self.last(streams)[0])
