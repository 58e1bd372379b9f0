"""A sequence read on by captured graphs: one set of them for each number of rows that comes, made at its first use. Knows no drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata_recipes.engine.adapt import Adapting
from strata_recipes.engine.missed import Missed
from strata_recipes.engine.stepper import Logits
from strata_recipes.engine.token_graph import HalvesOfToken, WholeToken
from strata_recipes.engine.token_inputs import TokenInputs
from strata_recipes.engine.walk import PhaseTimes
from strata_recipes.model.gathered import Gathered
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.model.reply_buffers import ReplyBuffers, host_memory
from strata_recipes.model.state_copy import StateCopy
from strata_recipes.model.token_layers import TokenLayers
from strata_recipes.pack.index import PackIndex
from strata_recipes.tiers.addresses import AddressTable
from strata_recipes.tiers.cuda_memory import LockedBuffer
from strata_recipes.tiers.lookup import ExpertTiers, TierCounters


class TokenStepper:
    """A Stepper (engine/stepper.py) on a card. `stage`: page-locked room for the experts that one layer's rows may miss, or None where
    every expert has an address. `gather`: room on the card for a layer's choice, or None where every expert has a slot."""

    fallback: str | None = None

    def __init__(
        self, ops: Any, model: Qwen4Exp, index: PackIndex, tiers: ExpertTiers, table: AddressTable, state: SequenceState, most_rows: int,
        stage: LockedBuffer | None, gather: Tensor | None, adapt: Adapting | None = None,
    ) -> None:  # fmt: skip
        self._adapt = adapt
        self._ops, self._model, self._index, self._tiers, self._table, self._state = ops, model, index, tiers, table, state
        self._stage, self._gather = stage, gather
        self._stream = torch.cuda.Stream(model.device)
        self._stream.wait_stream(torch.cuda.current_stream(model.device))  # which made the state
        self._room = ReplyBuffers(model.geometry, most_rows, state.max_context, model.device)
        self._ends = host_memory(model.geometry, most_rows, model.device)
        self._passes: dict[int, _Pass] = {}
        self._before = StateCopy(state) if most_rows > 1 else None
        self._last: list[int] = []

    def step(self, tokens: Sequence[int]) -> Logits:
        if len(tokens) > 1:
            self._keep()
        self._last = list(tokens)
        rows = self._read(self._last)
        if self._adapt is not None:
            self._adapt.count(rows.routed)
        return rows.logits

    def keep_only(self, num_tokens: int) -> None:
        """The state before the step comes back, and the tokens that stay are read once more: a recurrent state cannot be cut."""
        if num_tokens < len(self._last):
            assert self._before is not None, "a step of more than one token is kept before"
            with torch.cuda.stream(self._stream):
                self._before.restore(self._state.num_tokens - len(self._last))
            self._read(self._last[:num_tokens])

    def times(self) -> PhaseTimes:
        return PhaseTimes()

    def take_counters(self) -> TierCounters:
        return self._tiers.take_counters()

    def _keep(self) -> None:
        assert self._before is not None, "the stepper was made for steps of one token"
        with torch.cuda.stream(self._stream):
            self._before.take()

    def _read(self, tokens: list[int]) -> TokenInputs:
        """What it left is there when this returns; where it fails nothing goes on on the card, so that the state may be used anew."""
        first = self._state.num_tokens
        done = self._passes.get(len(tokens)) or self._make(len(tokens))
        if moved := self._tiers.take_moves():
            self._table.refresh(moved)
        done.inputs.put(np.array(tokens, np.int64), self._state)
        try:
            done.run()
            self._stream.synchronize()
        except BaseException:
            torch.cuda.synchronize(self._model.device)  # streams beside ours too, which it may not have joined yet
            raise
        done.inputs.refuse_nan(first)
        done.capture()
        return done.inputs

    def _make(self, rows: int) -> _Pass:
        g, device = self._model.geometry, self._model.device
        buffers = ReplyBuffers(g, rows, self._state.max_context, device, self._room)
        with torch.cuda.stream(self._stream):
            layers = TokenLayers(self._ops, self._model, self._index, self._state, self._table.on_card, buffers)
        room = self._gather
        gathered = None if room is None else Gathered(self._ops, self._index.layers, self._table.near, room[: rows * g.top_k])
        inputs = TokenInputs(self._model, buffers, self._ends)
        self._passes[rows] = _Pass(layers, gathered, inputs, self._tiers, self._table, self._stage, self._stream)
        self._stream.wait_stream(torch.cuda.current_stream(device))  # which zeroes all that was made here, and at first the room
        return self._passes[rows]


class _Pass:
    """One number of rows: its buffers, and the graphs that read them."""

    def __init__(
        self, layers: TokenLayers, gathered: Gathered | None, inputs: TokenInputs, tiers: ExpertTiers, table: AddressTable,
        stage: LockedBuffer | None, stream: torch.cuda.Stream,
    ) -> None:  # fmt: skip
        self.inputs = inputs
        self._tiers, self._table = tiers, table
        num_layers = inputs.routed.shape[0]
        self._graph: WholeToken | HalvesOfToken
        if stage is None:
            self._graph = WholeToken(layers, gathered, inputs, num_layers, stream)
        else:
            missed = Missed(tiers, table, layers.buffers["addresses"].shape[0], stage, layers.buffers["addresses"].device)
            self._graph = HalvesOfToken(layers, gathered, inputs, missed, num_layers, stream)
        self._stream = stream

    def run(self) -> None:
        self._graph.run()
        if isinstance(self._graph, WholeToken):
            self._stream.synchronize()
            self._count(self.inputs.routed)

    def capture(self) -> None:
        self._graph.capture()

    def _count(self, routed: NDArray[np.int32]) -> None:
        """Look-ups of a pass that asked no tier: an expert once a layer, however many rows chose it."""
        counted = np.zeros(self._table.in_vram.shape, np.bool_)
        np.put_along_axis(counted, routed.reshape(routed.shape[0], -1), True, axis=1)
        in_vram = int((counted & self._table.in_vram).sum())
        in_ram = (counted & ~self._table.in_vram).sum(axis=1)
        self._tiers.counters.vram_hits += in_vram
        self._tiers.counters.ram_hits += int(in_ram.sum())
        with self._tiers.up(sum(count * at.blob_bytes for count, at in zip(in_ram.tolist(), self._tiers.index.layers, strict=True))):
            pass  # where the bus of another PC is stood in for, it takes longer than this one's
