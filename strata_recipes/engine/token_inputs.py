"""What a token's graph takes from the host and leaves there: page-locked memory at addresses that stay. Computes nothing on a card."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata_recipes.errors import ModelError
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.model.reply_buffers import ReplyBuffers, host_ends

_RESULTS = ("logits", "nans", "routed")


class TokenInputs:
    """The host's side of a set of buffers, in `memory` that other sets may share: what a pass left there lasts until another begins."""

    def __init__(self, model: Qwen4Exp, buffers: ReplyBuffers, memory: Tensor) -> None:
        self._model, self._b = model, buffers
        ends = host_ends(model.geometry, buffers.rows, memory)
        self._inputs = {name: here for name, here in ends.items() if name not in _RESULTS}
        self._results = {name: ends[name] for name in _RESULTS}

    def put(self, tokens: NDArray[np.int64], state: SequenceState) -> None:
        """Looks up what the host keeps of these tokens, and moves the state's count and the n-grams' history on."""
        at = state.num_tokens
        self._inputs["embedding"].copy_(self._model.embedding(tokens))
        self._inputs["position"][0] = at
        for layer in range(self._model.geometry.num_layers):
            state.advance(layer, at, len(tokens))
            ngram = self._model.layers[layer].ngram
            if ngram:
                self._inputs[f"ngram_{layer}"].copy_(ngram.rows(torch.from_numpy(tokens), state.ngram[layer]))

    def send(self) -> None:
        """Queues the copies up; part of a graph."""
        for name, here in self._inputs.items():
            self._b[name].copy_(here, non_blocking=True)

    def bring(self, name: str, layer: int | None = None) -> None:
        """Queues a result's copy down; part of a graph."""
        here, there = self._results[name], self._b[name]
        if layer is None:
            here.copy_(there, non_blocking=True)
        else:
            here[layer].copy_(there[layer], non_blocking=True)

    @property
    def logits(self) -> NDArray[np.float32]:
        """[rows, vocab], once their copy has come."""
        return self._results["logits"].numpy()

    @property
    def routed(self) -> NDArray[np.int32]:
        """Expert ids [layers, rows, k], ascending."""
        return self._results["routed"].numpy()

    def refuse_nan(self, first: int) -> None:
        """ModelError where a router's score was none."""
        count = int(self._results["nans"][0])
        if count:
            raise ModelError(
                f"{count} of the scores that routers gave at token {first} are NaN: "
                "check the model's files with experts.verify=true, or use compute=f32"
            )
