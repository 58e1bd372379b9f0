"""The experts half: the right experts on the right rows, each asked for once, and what each arithmetic rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from strata_recipes.errors import ConfigError
from strata_recipes.model.arithmetic import rounded
from strata_recipes.model.experts import CpuExperts
from strata_recipes.model.mixer_out import MixerOut
from strata_recipes.model.qwen4_exp import Qwen4Exp
from tests.model.drive import logits
from tests.model.hf_model import MemoryPack


class Watched:
    """Passes blobs through one buffer that is spoilt after each, and notes what was asked for."""

    def __init__(self, pack: MemoryPack) -> None:
        self._pack = pack
        self.asked: list[tuple[int, tuple[int, ...]]] = []

    def blobs(self, layer: int, experts: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        self.asked.append((layer, tuple(experts)))
        buffer = np.empty(self._pack.index.layers[layer].blob_bytes, np.uint8)
        for expert, blob in self._pack.blobs(layer, experts):
            buffer[:] = blob
            yield expert, buffer
            buffer[:] = 255


def mixed(pack: MemoryPack, rows: int, compute: str = "f32") -> MixerOut:
    model = Qwen4Exp(pack, compute, "fp32", 64, 1)
    ids = np.arange(rows) * 7 % 96
    return model.mixer(0, model.embed(ids), ids, model.new_state(), 0)


def by_hand(theirs: Any, out: MixerOut) -> np.ndarray:
    x, acc, experts = out.x.double(), out.acc.double().clone(), theirs.model.layers[0].mlp.experts
    for row in range(x.shape[0]):
        for expert, weight in zip(out.experts[row].tolist(), out.weights[row].double(), strict=True):
            gate, up = (experts.gate_up_proj[expert].double() @ x[row]).chunk(2)
            acc[row] += weight * (experts.down_proj[expert].double() @ (torch.nn.functional.silu(gate) * up))
    return acc.detach().numpy()


@pytest.mark.parametrize("rows", [1, 23])
def test_equals_every_row_by_hand(small: Any, rows: int) -> None:
    theirs, pack = small
    out, tiers = mixed(pack, rows), Watched(pack)
    want = by_hand(theirs, out)
    CpuExperts(pack.index, "f32")(out, 0, tiers)
    np.testing.assert_allclose(out.acc, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
    assert tiers.asked == [(0, tuple(sorted(set(out.experts.flatten().tolist()))))], "each chosen expert once, ascending"


def test_a_rows_experts_do_not_depend_on_the_other_rows(small: Any) -> None:
    pack = small[1]
    whole = mixed(pack, 23)
    before = whole.acc.clone()
    CpuExperts(pack.index, "f32")(whole, 0, pack)
    for part in (slice(0, 9), slice(9, 10), slice(10, 23)):
        cut = {name: getattr(whole, name)[part].clone() for name in ("streams", "x", "experts", "weights", "inject")}
        alone = MixerOut(**cut, acc=before[part].clone())
        CpuExperts(pack.index, "f32")(alone, 0, pack)
        assert torch.equal(alone.acc, whole.acc[part])


def test_a_provider_that_answers_with_another_expert_is_caught(small: Any) -> None:
    pack = small[1]

    class Wrong:
        def blobs(self, layer: int, experts: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
            yield from pack.blobs(layer, list(reversed(experts)))

    with pytest.raises(AssertionError, match="of layer 0 came where"):
        CpuExperts(pack.index, "f32")(mixed(pack, 5), 0, Wrong())


def test_q8_rounds_to_eight_bits_with_a_scale_for_32_values() -> None:
    x = torch.randn(3, 70, generator=torch.Generator().manual_seed(0))
    got = rounded(x, "q8")
    for start in (0, 32, 64):
        group, back = x[:, start : start + 32], got[:, start : start + 32]
        step = group.abs().amax(1, keepdim=True) / 127
        assert ((back - group).abs() <= 0.5001 * step).all()
        assert torch.allclose(back / step, torch.round(back / step), atol=1e-3)
    assert torch.equal(rounded(torch.zeros(2, 32), "q8"), torch.zeros(2, 32))
    assert rounded(torch.tensor([[torch.nan, 1.0]]), "q8").isnan().any()


@pytest.mark.parametrize(("compute", "dtype"), [("bf16", torch.bfloat16), ("f16", torch.float16)])
def test_halves_round_operands_and_sum_in_float32(small: Any, compute: str, dtype: torch.dtype) -> None:
    """By hand with operands rounded the same way, in float64: only float32 summation is left between them."""
    theirs, pack = small
    out = mixed(pack, 6, compute)
    operand, acc = (lambda t: t.to(dtype).double()), out.acc.double().clone()
    experts = theirs.model.layers[0].mlp.experts
    for row in range(6):
        for expert, weight in zip(out.experts[row].tolist(), out.weights[row].double(), strict=True):
            gate, up = (operand(experts.gate_up_proj[expert]) @ operand(out.x[row])).chunk(2)
            hidden = operand((torch.nn.functional.silu(gate) * up).float())
            acc[row] += weight * (operand(experts.down_proj[expert]) @ hidden)
    CpuExperts(pack.index, compute)(out, 0, pack)
    want = acc.detach().numpy()
    assert np.linalg.norm(out.acc.numpy() - want) <= 2e-4 * np.linalg.norm(want), "a hidden value near the middle of two halves may flip"


def test_an_unknown_arithmetic_is_refused(small: Any) -> None:
    with pytest.raises(ConfigError, match="compute=fp8 is not one of f32, bf16, f16, q8"):
        Qwen4Exp(small[1], "fp8", "fp32", 64, 1)


def test_a_token_outside_the_vocabulary_is_refused(small: Any) -> None:
    model = Qwen4Exp(small[1], "f32", "fp32", 64, 1)
    for bad in (96, -1):
        with pytest.raises(ConfigError, match=rf"token id {bad} at position 2 is outside the model's vocabulary of 96"):
            model.embed(np.array([1, 2, bad]))


def test_the_same_grid_gives_the_same_bits_and_layer_major_order_too(small: Any) -> None:
    pack, ids, chunk = small[1], np.arange(50) * 5 % 96, 16
    model = Qwen4Exp(pack, "f32", "fp32", 64, 1)
    first, second = (logits(model, pack, pack, ids, chunk)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    state, spans = model.new_state(), [(at, ids[at : at + chunk]) for at in range(0, 50, chunk)]
    streams = [model.embed(span) for _, span in spans]
    for layer in range(4):
        outs = [model.mixer(layer, s, span, state, at) for s, (at, span) in zip(streams, spans, strict=True)]
        for out in outs:
            CpuExperts(pack.index, "f32")(out, layer, pack)
        streams = [model.combine(out) for out in outs]
    np.testing.assert_array_equal(torch.cat([model.logits(s) for s in streams]), first)
