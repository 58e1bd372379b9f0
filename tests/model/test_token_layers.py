"""The layers as small ops, on their numpy truth: the model's own logits and states, one row at a time and several."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kernels_numba import reference, reference_decode, reference_decode_mixers, reference_ops
from kernels_numba.endings import Ending
from kernels_numba.formats import FORMATS
from strata_recipes.engine.walk import Walk
from strata_recipes.model.dense_slabs import ResidentDense
from strata_recipes.model.experts import CpuExperts
from strata_recipes.model.gathered import Gathered, gather_room
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.kv_cells import Cells
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.model.reply_buffers import ReplyBuffers
from strata_recipes.model.token_layers import TokenLayers
from strata_recipes.pack.reader import Pack, open_pack
from strata_recipes.pack.sources.gguf import GgufSource
from strata_recipes.pack.writer import build_pack
from strata_recipes.schedule.prefill import step_visits
from tests.model.drive import distance
from tests.model.references import SOURCES, stored


class Truth:
    """The ops by name on CPU tensors, which share their memory with the arrays that the truth writes into."""

    @staticmethod
    def Stack(table: Tensor, ends: Tensor, num_outs: int, format_name: str, width: int) -> Any:
        return SimpleNamespace(table=table, ends=ends, num_outs=num_outs, format_name=format_name, width=width, planar=False)

    @staticmethod
    def Jobs(table: Tensor, rows: Tensor, offset: int) -> tuple[Tensor, Tensor, int]:
        return table, rows, offset

    @staticmethod
    def matvec(x: Tensor, jobs: tuple[Tensor, Tensor, int], form: str, num_outs: int, out: Tensor, stream: int = 0) -> None:
        table, rows, offset = jobs
        size = num_outs * FORMATS[form].row_bytes(x.shape[1])
        for job, address in enumerate(table.tolist()):
            if address:
                data = np.ctypeslib.as_array(ctypes.cast(address + offset, ctypes.POINTER(ctypes.c_uint8)), (size,))
                weights = reference.dequantize(data, form).reshape(num_outs, -1)
                out[job] = torch.from_numpy(reference_ops.matvec(x[rows[job].long()].numpy(), weights)).float()

    @staticmethod
    def silu_multiply(gate: Tensor, up: Tensor, out: Tensor, stream: int = 0) -> None:
        out.copy_(torch.from_numpy(reference_ops.silu(gate.numpy()) * up.double().numpy()))

    def __getattr__(self, name: str) -> Callable[..., None]:
        found = getattr(reference_decode, name, None) or getattr(reference_decode_mixers, name)

        def op(*arguments: Any) -> None:
            *given, stream = arguments
            assert stream == 0
            found(*(_array(one) for one in given))

        return op


def _array(one: Any) -> Any:
    if isinstance(one, Ending):
        return one.changed(_array)
    if isinstance(one, Cells):
        return one.near.numpy()
    return one.numpy() if isinstance(one, Tensor) else one


@pytest.fixture(params=["tiny-q2_0", "tiny-mixed"])
def pack(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Pack]:
    with GgufSource(request.param, SOURCES[request.param]) as source:
        build_pack(source, tmp_path / "pack")
    with open_pack(tmp_path / "pack") as opened:
        yield opened


class InFile:
    """Every expert at its address in the file's bytes."""

    def __init__(self, pack: Pack) -> None:
        self._pack, g = pack, pack.index.geometry
        self._bytes = np.fromfile(pack.experts_path, np.uint8)
        base = self._bytes.ctypes.data
        self.table = torch.tensor([[base + pack.index.offset(la, ex) for ex in range(g.num_experts)] for la in range(g.num_layers)])

    def blobs(self, layer: int, experts: Any) -> Iterator[tuple[int, Any]]:
        for expert in experts:
            at = self._pack.index.offset(layer, expert)
            yield expert, self._bytes[at : at + self._pack.index.layers[layer].blob_bytes]


def stored_model(pack: Pack) -> Qwen4Exp:
    """Its matrices as a card has them: stored. Here only their parts are used."""
    cpu = torch.device("cpu")
    return Qwen4Exp(pack, "f32", "fp32", 512, 2, cpu, ResidentDense(pack, cpu))


def plain_step(model: Qwen4Exp, pack: Pack, experts: InFile, state: SequenceState, ids: list[int], first: int) -> np.ndarray:
    walk = Walk(model, CpuExperts(pack.index, "f32"), experts, state, np.array(ids), first)
    rows = []
    for at in range(first, first + len(ids)):
        for visit in step_visits(model.geometry.num_layers, at, 1):
            walk.do(visit)
        rows.append(walk.logits((at, at + 1), every=False, last=True))
    return np.concatenate(rows)


def small_step(model: Qwen4Exp, layers: TokenLayers, state: SequenceState, ids: list[int], gathered: Gathered | None = None) -> np.ndarray:
    b, at = layers.buffers, state.num_tokens
    b["embedding"].copy_(model.embedding(np.array(ids)))
    b["position"][0] = at
    for layer in range(model.geometry.num_layers):
        state.advance(layer, at, len(ids))
        ngram = model.layers[layer].ngram
        if ngram:
            b[f"ngram_{layer}"].copy_(ngram.rows(torch.tensor(ids), state.ngram[layer]))
    layers.begin()
    for layer in range(model.geometry.num_layers):
        layers.route(layer, 0)
        layers.shared(layer, 0)
        if gathered is None:
            layers.experts(layer, b["addresses"], 0)
        else:
            chosen = b["routed"][layer].view(-1)
            gathered.inputs(layer, b["addresses"], chosen, 0)
            layers.expert_inputs(layer, gathered.addresses, 0)
            gathered.outputs(layer, b["addresses"], chosen, 0)
            layers.expert_outputs(layer, gathered.addresses, 0)
        layers.combine(layer, 0)
    layers.logits(0)
    assert not b["nans"].any()
    return b["logits"].numpy().copy()


def test_small_ops_give_the_models_logits_and_states(pack: Pack) -> None:
    """Float32 against float64 sums that are rounded: 1e-5, far above what one rounding a sum makes of five layers."""
    model, stored_one, experts = Qwen4Exp(pack, "f32", "fp32", 512, 2), stored_model(pack), InFile(pack)
    ids = (stored("tiny-q2_0", "long")["ids"][:120] % pack.index.geometry.vocab).tolist()
    state = model.new_state(256)
    plain_step(model, pack, experts, state, ids[:100], 0)
    ours = copy.deepcopy(state)
    singly = copy.deepcopy(state)
    want = plain_step(model, pack, experts, state, ids[100:], 100)
    one, three = (
        TokenLayers(Truth(), stored_one, pack.index, s, experts.table, ReplyBuffers(model.geometry, r, 256, model.device))
        for s, r in ((singly, 1), (ours, 5))
    )
    got = np.concatenate([small_step(stored_one, one, singly, [token]) for token in ids[100:]])
    together = np.concatenate([small_step(stored_one, three, ours, ids[at : at + 5]) for at in range(100, 120, 5)])
    assert distance(got, want) <= 1e-5
    assert distance(together, got) <= 1e-6  # numpy's sums depend on the number of rows; the kernels' bits are held on a card
    for layer, delta in state.delta.items():
        assert distance(singly.delta[layer].delta.numpy(), delta.delta.numpy()) <= 1e-5
        assert distance(ours.delta[layer].delta.numpy(), delta.delta.numpy()) <= 1e-5


def test_gathered_blobs_give_the_same_bits(pack: Pack) -> None:
    """Every third expert has a slot, the others are copied first: never a byte of a blob before it was."""
    model, stored_one, experts = Qwen4Exp(pack, "f32", "fp32", 512, 2), stored_model(pack), InFile(pack)
    ids = (stored("tiny-q2_0", "long")["ids"][:6] % pack.index.geometry.vocab).tolist()
    found = []
    for gathers in (False, True):
        state = model.new_state(256)
        layers = TokenLayers(Truth(), stored_one, pack.index, state, experts.table, ReplyBuffers(model.geometry, 3, 256, model.device))
        near = torch.zeros(experts.table.shape, dtype=torch.uint8)
        near[:, ::3] = 1
        room = gather_room(pack.index, 3, torch.empty(0, dtype=torch.uint8)).fill_(255)
        gathered = Gathered(Truth(), pack.index.layers, near, room) if gathers else None
        found.append([small_step(stored_one, layers, state, ids[at : at + 3], gathered) for at in (0, 3)])
        assert (room == 255).all() != gathers
    assert np.array_equal(*found)
