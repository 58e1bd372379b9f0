"""Has every kernel of a card compiled while the start's copies go on: a few tokens of nothing through all layers. Keeps nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from strata_recipes.model.experts import Experts
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.pack.index import PackIndex
from strata_recipes.tiers.cuda_slots import Slot

WAIT_S = 0.2  # a wait without end cannot be interrupted on every system
TOKENS = 2  # one would take the recurrent form of the gated delta net


@dataclass(frozen=True)
class _Nothing:
    """Rows of zeros, all for the first experts."""

    x: Tensor
    experts: Tensor
    weights: Tensor
    acc: Tensor


class _Blank:
    """Every expert is one blob of zero bytes on the card."""

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        self._blob = torch.zeros(num_bytes, dtype=torch.uint8, device=device)

    def blobs(self, layer: int, experts: Sequence[int]) -> Iterator[tuple[int, Slot]]:
        for expert in experts:
            yield expert, Slot(self._blob.data_ptr(), self._blob.numel())


class WarmUp:
    """A thread of its own; `wait` returns when all is compiled, and raises what it raised. `close` ends it after the kernel at work."""

    def __init__(self, model: Qwen4Exp, experts: Experts, index: PackIndex, cells_apart: bool) -> None:
        self._work = model, experts, index
        self._cells_apart = cells_apart
        self._error: BaseException | None = None
        self._stopping = False
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="warm-up", daemon=True)
        self._thread.start()

    def wait(self) -> float:
        """Seconds that were still to wait for."""
        began = time.perf_counter()
        self._join()
        if self._error:
            raise self._error
        return time.perf_counter() - began

    def close(self) -> None:
        """Ends it, done or not; closing twice is nothing."""
        self._stopping = True
        self._join()

    def _join(self) -> None:
        while self._thread.is_alive():
            self._thread.join(WAIT_S)

    def _run(self) -> None:
        began = time.perf_counter()
        try:
            for step in (*_mixers(*self._work[::2], self._cells_apart), *_experts(*self._work)):
                if self._stopping:
                    return
                step()
            torch.cuda.synchronize()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits for it
            self._error = error
        self.seconds = time.perf_counter() - began


def _mixers(model: Qwen4Exp, index: PackIndex, cells_apart: bool) -> list[Callable[[], object]]:
    """Each layer's, one after the other, then the head and the ranking of blocks. Kernels differ where some cells lie in RAM."""
    ids, context = np.zeros(TOKENS, np.int64), max(TOKENS, index.geometry.index_block)
    state = model.new_state(context, 1 if cells_apart else None, partial(torch.empty, dtype=torch.uint8, pin_memory=cells_apart))
    streams = model.embed(ids)
    layers = [partial(model.mixer, layer, streams, ids, state, 0) for layer in range(index.geometry.num_layers)]
    return [*layers, partial(model.logits, streams[-1:]), model.warm_up_selection]


def _experts(model: Qwen4Exp, experts: Experts, index: PackIndex) -> list[Callable[[], object]]:
    """One layer of each set of formats."""
    g = index.geometry
    blank = _Blank(index.max_blob_bytes, model.device)
    chosen = torch.arange(g.top_k, device=model.device).repeat(TOKENS, 1)
    zeros = torch.zeros(TOKENS, g.hidden, device=model.device)
    rows = _Nothing(zeros, chosen, torch.ones_like(chosen, dtype=torch.float32), zeros.clone())
    first = {(at.gate, at.up, at.down): layer for layer, at in reversed(list(enumerate(index.layers)))}
    return [partial(experts, rows, layer, blank) for layer in first.values()]
