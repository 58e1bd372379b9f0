"""What a prompt takes of a card is what the plan counts: the model's own passes at the true geometry, over tensors that hold nothing.

Left out are kernels that write where they are told to, and what looks at values: NaNs, equal scores, hashes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from strata_recipes.engine import warm_up
from strata_recipes.model import ple, qsa, router, stored_matrix, streamed_dense
from strata_recipes.model.dense_slabs import views
from strata_recipes.model.indexer import Indexer
from strata_recipes.model.kept_rows import KeptRows
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.model.streamed_dense import StreamedDense
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.budget import (
    BUFFERS,
    CROSSING,
    EXPERT_ROWS,
    GAPS,
    KEPT_ROWS,
    MATMUL,
    REPLY,
    RING,
    SLOTS,
    Demand,
    fixed_parts,
    warm_up_bytes,
)
from strata_recipes.plan.dense import slabs
from strata_recipes.plan.plan import Plan
from tests.model.card_memory import MIB, Allocations, Caching, Event, holds, least_limit
from tests.plan.cases import index_of, planned
from tests.plan.test_dense import LAPTOP, TRUE

CPU, CONTEXT, NAME = torch.device("cpu"), 51_712, "qwen38_flash_next_q2_0"


class Nothing:
    """A pack's index, and a card's dense weights, without a byte in them."""

    def __init__(self, index: PackIndex) -> None:
        self.index = index
        self.placed: dict[str, Tensor] = {}
        for slab in slabs(index):
            self.placed |= views(slab, torch.empty(slab.num_bytes, dtype=torch.uint8))
        self._tensors = {tensor.name: tensor for tensor in index.dense}

    def dense(self, name: str) -> tuple[Any, str, tuple[int, ...]]:
        found = self._tensors[name]
        return None, found.format, found.shape

    def ngram_rows(self, rows: Any) -> Any:
        raise AssertionError("no row is read")

    def moves(self, reply: bool) -> bool:
        return False

    def move(self) -> None:
        raise AssertionError("they stay")

    def use(self, layer: int) -> None:
        """They are there."""


def _ranked(self: Indexer, scores: Tensor, start: int) -> Tensor:
    chosen = torch.empty(scores.shape[0], self.num_selected, dtype=torch.int32)
    self.has_ties(scores, chosen, (torch.arange(start, start + scores.shape[0]) + 1) // self.block)
    return chosen


def _read(self: Any, query: Tensor, index: Tensor | None, state: Any, start: int, middle: int) -> Tensor:
    return self._read_on_card(query, index, state, start)


def _product(operand: Tensor, weight: Tensor) -> Tensor:
    return torch.empty(operand.shape[0], weight.shape[0])


def _rows(self: ple.NgramEmbedding, rows: Tensor) -> Tensor:
    g = self._g
    return torch.empty(rows.shape[0], (g.ngram_size - 1) * g.ngram_heads * g.ngram_width)


@pytest.fixture(autouse=True)
def as_on_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    import kernels_numba.gpu.selected_attention as attention

    monkeypatch.setattr(attention, "selected_attention", lambda *arguments: None)
    monkeypatch.setattr(qsa, "_TILE_BYTES", {"cpu": qsa._TILE_BYTES["cuda"]})
    monkeypatch.setattr(qsa.SelectedAttention, "_read", _read)
    monkeypatch.setattr(Indexer, "select", _ranked)
    monkeypatch.setattr(router, "refuse_nan", lambda *arguments: None)
    monkeypatch.setattr(stored_matrix, "_dequantize", lambda part, out: None)
    monkeypatch.setattr(stored_matrix, "_product", _product)
    monkeypatch.setattr(ple.NgramHash, "__call__", lambda self, ids, history: torch.empty(ids.shape[0], 1))
    monkeypatch.setattr(ple.NgramEmbedding, "_rows", _rows)


def passes(index: PackIndex, compute: str, rows: int) -> Allocations:
    """Two passes over one layer of each kind, the last logits after each, at the end of a long context."""
    g = index.geometry
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        pack = Nothing(index)
        model = Qwen4Exp(pack, compute, "fp16", CONTEXT, 1, CPU, pack)
        assert model._workspace is not None
        model._workspace.values(1, torch.float32)  # counted apart
        state, start, ids = SequenceState(g, "fp16", CONTEXT), CONTEXT - rows, np.zeros(rows, np.int64)
        layers = sorted({0, g.attention_layers[0], *g.ngram_layers[:1]})
        with Allocations() as seen:
            for _ in range(2):
                streams = torch.empty(rows, g.streams * g.hidden)
                for layer in layers:
                    state._tokens[layer] = start
                    out = model.mixer(layer, streams, ids, state, start)
                    del streams
                    streams = model.combine(out)
                    del out
                model.logits(streams[-1:])
                del streams
    return seen


class Stateful:
    """Of a model, what a reply's kernels are compiled on."""

    def __init__(self, index: PackIndex, kv: str) -> None:
        self.geometry, self.device, self.max_context, self._kv = index.geometry, CPU, CONTEXT, kv

    def new_state(self, context: int, resident: None, host: Any, *, shared: bool) -> SequenceState:
        return SequenceState(self.geometry, self._kv, context, shared=shared)


def compiling(index: PackIndex, rows: int, monkeypatch: pytest.MonkeyPatch, kv: str = "fp16") -> list[Event]:
    """What the warm-up's thread keeps while it compiles the kernels of replies of up to `rows` rows: all that it takes, but for tables."""
    monkeypatch.setattr(warm_up, "TokenLayers", lambda *arguments: None)
    monkeypatch.setattr(warm_up, "_token", lambda layers, num_layers: ())
    with FakeTensorMode(), Allocations() as seen:
        for _ in warm_up._reply(Stateful(index, kv), index, False, rows):  # type: ignore[arg-type]
            pass
    return [(True, -which - 1, num_bytes) for taken, which, num_bytes in seen.events if taken]


def counted(index: PackIndex, compute: str, rows: int) -> Mapping[str, int]:
    demand = Demand("cuda", compute, "fp16", CONTEXT, rows, 1)
    return {part.name: part.num_bytes for part in fixed_parts(index, demand).vram}


@pytest.mark.parametrize(
    ("rows", "compute"), [(1, "bf16"), (16, "bf16"), (64, "q8"), (512, "bf16"), (512, "q8"), (512, "f32"), (2048, "bf16")]
)
def test_the_plan_counts_what_a_pass_takes_and_what_the_allocator_wastes(rows: int, compute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(NAME)
    seen, plan = passes(index, compute, rows), counted(index, compute, rows)
    beside = compiling(index, 1, monkeypatch)  # at a first start it goes on while a prompt is read
    least = least_limit([*beside, *seen.events])
    print(f"{rows} rows, {compute}: {seen.peak_bytes / MIB:.1f} MiB at once of {plan[BUFFERS] / MIB:.1f}, {least / MIB:.0f} with gaps")
    assert seen.live_bytes == 0
    assert seen.peak_bytes <= plan[BUFFERS] + MIB
    assert least <= plan[BUFFERS] + plan[REPLY] + plan[GAPS]
    assert seen.peak_bytes > plan[BUFFERS] / 2 or rows < 64  # no more is counted than that


@pytest.mark.parametrize(("rows", "kv"), [(1, "fp32"), (1, "fp16"), (8, "int8"), (8, "q4_0")])
def test_the_plan_counts_what_a_replys_kernels_are_compiled_on(rows: int, kv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(NAME)
    taken = sum(num_bytes for _, _, num_bytes in compiling(index, rows, monkeypatch, kv))
    assert abs(warm_up_bytes(index, kv, rows - 1) - taken) < 8 << 10  # places are 24 KiB


class NoCopies:
    """Each is done at once."""

    def put(self, place: Tensor, host: Tensor) -> None: ...
    def wait(self) -> None: ...
    def drain(self) -> None: ...


def two_turns(plan: Plan, index: PackIndex, spans: Sequence[Event], monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What a session takes and gives back in its order: the start, then twice a prompt in one super-chunk with dense weights on call,
    which passes over `spans`, and a reply with all of them."""
    monkeypatch.setattr(streamed_dense, "fill", lambda pack, slab, memory: None)
    tokens, part = plan.prefill.prompt_tokens, plan.vram.part
    with FakeTensorMode():
        host, pack = torch.empty(0, dtype=torch.uint8), Nothing(index)
        with Allocations() as seen:
            dense = StreamedDense(pack, CPU, lambda num_bytes: host, NoCopies())
            stays = [_taken(size) for size in (part(RING), part(EXPERT_ROWS), part(MATMUL) // 2, part(MATMUL) // 2, part(SLOTS)) if size]
            state = SequenceState(index.geometry, "fp16", plan.kv.max_context)
            for _ in range(2):
                kept = KeptRows(index.geometry, 0, tokens)
                rounded = _taken(tokens * index.geometry.hidden * 2)
                at_experts = [_taken(part(CROSSING)), _taken(part(KEPT_ROWS) - kept.num_bytes - rounded.nbytes)]
                seen.events += spans
                del kept, rounded, at_experts
                dense.move()
                reply = [_taken(size * MIB // 4) for size in range(1, 9)]  # what a rest of a segment may hold
                dense.move()
                del reply
            events = list(seen.events)
            del dense, stays, state
    return events


def _taken(num_bytes: int) -> Tensor:
    return torch.empty(num_bytes, dtype=torch.uint8)


def test_weights_on_call_and_a_replys_take_turns_in_the_plans_vram(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever few slots there is room for: one of 1.3 MiB once lay in the rest of the weights' last segment, and held all of it."""
    index = index_of(TRUE)
    seen, slots = passes(index, "bf16", 512), []
    spans = [(taken, -which - 1, num_bytes) for taken, which, num_bytes in seen.events]
    for vram in (6844, 6853):
        plan = planned(f"{LAPTOP} hardware.gpu.vram={vram}MiB workload.tokens=51_500", TRUE)
        assert plan.prefill.dense == "streamed" and plan.prefill.super_chunk >= 51_500
        assert holds(plan.vram.limit_bytes, two_turns(plan, index, spans, monkeypatch)), f"{plan.vram_slots} slots"
        slots.append(plan.vram_slots)
    assert slots[0] == 1 and slots[1] > 1


def test_the_modelled_allocator_splits_joins_and_gives_up() -> None:
    card = Caching(44 * MIB)
    assert card.take(1, 12 * MIB) and card.take(2, 5 * MIB) and card.take(3, 5 * MIB)  # 12, then 20 for both
    assert not card.take(4, 14 * MIB)  # 12 are left, and no segment is free
    card.give_back(1)
    assert card.take(4, 14 * MIB)  # the free 12 are given up for them
    card.give_back(2)
    card.give_back(3)
    assert card.take(5, 20 * MIB)  # joined again
    assert card.take(6, 1000 - 1000 % 512 + 512) and not card.take(7, 9 * MIB)
