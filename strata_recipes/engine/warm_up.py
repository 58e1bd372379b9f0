"""Has every kernel of a card compiled while the start's copies go on: a few tokens of nothing through all layers. Keeps nothing."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from strata_recipes.model.experts import Experts
from strata_recipes.model.gathered import Gathered
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.kv_cells import HostPart
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.model.reply_buffers import ReplyBuffers
from strata_recipes.model.token_layers import TokenLayers
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.budget import max_stride
from strata_recipes.tiers.cuda_slots import Slot

WAIT_S = 0.2  # a wait without end cannot be interrupted on every system
TURN_S = 5e-4  # that a compiling thread keeps the interpreter: at Python's 5 ms each small copy of a start waits that long for its turn
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
    """A thread of its own, first through a prompt's kernels, then through a reply's. `wait` returns when a prompt can be read, `wait_all`
    when all is compiled; both raise what it raised. `close` ends it after the kernel at work."""

    def __init__(self, model: Qwen4Exp, experts: Experts, index: PackIndex, cells_apart: bool, most_rows: int) -> None:
        """`most_rows`: of a reply's passes. `cells_apart`: some keys and values lie in RAM."""
        self._work = model, experts, index
        self._most_rows = most_rows
        self._prompt = threading.Event()
        self._cells_apart = cells_apart
        self._error: BaseException | None = None
        self._stopping = False
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="warm-up", daemon=True)
        self._thread.start()

    def wait(self) -> float:
        """Seconds that were still to wait for."""
        began = time.perf_counter()
        while not self._prompt.wait(WAIT_S):
            pass
        if self._error:
            raise self._error
        return time.perf_counter() - began

    def wait_all(self) -> None:
        """Returns when a reply's kernels are compiled too."""
        self._join()
        if self._error:
            raise self._error

    def close(self) -> None:
        """Ends it, done or not; closing twice is nothing."""
        self._stopping = True
        self._join()

    def _join(self) -> None:
        while self._thread.is_alive():
            self._thread.join(WAIT_S)

    def _run(self) -> None:
        began, turn_s = time.perf_counter(), sys.getswitchinterval()
        sys.setswitchinterval(min(TURN_S, turn_s))
        try:
            self._do((*_mixers(*self._work[::2], self._cells_apart), *_experts(*self._work)))
            self.seconds = time.perf_counter() - began
            self._prompt.set()
            self._do(_reply(*self._work[::2], self._cells_apart, self._most_rows))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits for it
            self._error = error
        finally:
            sys.setswitchinterval(turn_s)
            self._prompt.set()

    def _do(self, steps: Iterable[Callable[[], object]]) -> None:
        for step in steps:
            if self._stopping:
                return
            step()
        torch.cuda.synchronize()


def _small_state(model: Qwen4Exp, context: int, cells_apart: bool) -> SequenceState:
    def pinned(num_bytes: int) -> HostPart:
        return HostPart(torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True))

    return model.new_state(context, 1 if cells_apart else None, pinned, shared=True)


def _mixers(model: Qwen4Exp, index: PackIndex, cells_apart: bool) -> list[Callable[[], object]]:
    """Each layer's, one after the other, then the head and the ranking of blocks. Kernels differ where some cells lie in RAM."""
    ids, context = np.zeros(TOKENS, np.int64), max(TOKENS, index.geometry.index_block)
    state, streams = _small_state(model, context, cells_apart), model.embed(ids)
    layers = [partial(model.mixer, layer, streams, ids, state, 0) for layer in range(index.geometry.num_layers)]
    return [*layers, partial(model.logits, streams[-1:]), model.warm_up_selection]


def _reply(model: Qwen4Exp, index: PackIndex, cells_apart: bool, most_rows: int) -> Iterator[Callable[[], object]]:
    """A layer after the other, on buffers and a state of its own; with each number of rows that drafts can ask for, since how work is cut
    may hang on it: nothing is left to be compiled in the middle of a reply."""
    from kernels_numba.gpu import index_decode, token_ops

    g, device, context = index.geometry, model.device, max(most_rows, index.geometry.index_block)
    state, blank = _small_state(model, context, cells_apart), _Blank(index.max_blob_bytes, device)
    table = torch.full((g.num_layers, g.num_experts), next(blank.blobs(0, [0]))[1].address, device=device)
    one = torch.empty(1, max_stride(index), dtype=torch.uint8, device=device)
    gathered = Gathered(token_ops, index.layers, torch.zeros_like(table, dtype=torch.uint8), one)
    yield partial(gathered.inputs, 0, table[0, :1].contiguous(), None, 0)
    if g.attention_layers:
        yield partial(index_decode.load_selection, -(-model.max_context // g.index_block), g.index_block)
    room = ReplyBuffers(g, most_rows, context, device)
    for rows in range(1, most_rows + 1):
        buffers = ReplyBuffers(g, rows, context, device, room)
        yield from _token(TokenLayers(token_ops, model, index, state, table, buffers), g.num_layers)


def _token(layers: TokenLayers, num_layers: int) -> Iterator[Callable[[], object]]:
    yield layers.begin
    for layer in range(num_layers):
        yield partial(layers.route, layer, 0)
        yield partial(layers.shared, layer, 0)
        yield partial(layers.experts, layer, layers.buffers["addresses"], 0)
        yield partial(layers.combine, layer, 0)
    yield partial(layers.logits, 0)


def _experts(model: Qwen4Exp, experts: Experts, index: PackIndex) -> list[Callable[[], object]]:
    """One layer of each set of formats."""
    g = index.geometry
    blank = _Blank(index.max_blob_bytes, model.device)
    chosen = torch.arange(g.top_k, device=model.device).repeat(TOKENS, 1)
    zeros = torch.zeros(TOKENS, g.hidden, device=model.device)
    rows = _Nothing(zeros, chosen, torch.ones_like(chosen, dtype=torch.float32), zeros.clone())
    first = {(at.gate, at.up, at.down): layer for layer, at in reversed(list(enumerate(index.layers)))}
    return [partial(experts, rows, layer, blank) for layer in first.values()]
