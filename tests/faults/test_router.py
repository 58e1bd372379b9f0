"""Scores that mean nothing, experts that nobody or everybody chooses, and more experts than a small type counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from strata_recipes.engine.session import Session
from strata_recipes.errors import ModelError, PackError
from strata_recipes.model.experts import CpuExperts
from strata_recipes.model.mixer_out import MixerOut
from strata_recipes.pack.reader import Pack, open_pack
from tests.engine.plans import plan_for
from tests.faults import oracle
from tests.faults.conftest import Packed, packed
from tests.faults.models import TINY, Made, Weights, make

ROUTER = "blk.{}.ffn_gate_inp.weight"


@contextmanager
def opened(folder: Path, change: Callable[[Weights], object], **geometry: int) -> Iterator[tuple[Made, Pack]]:
    made = make(folder / "a.gguf", dataclasses.replace(TINY, **geometry), change=change)  # type: ignore[arg-type]
    with open_pack(packed(made, folder / "pack").folder) as pack:
        yield made, pack


def fill(name: str, value: float, rows: object = slice(None)) -> Callable[[Weights], object]:
    return lambda weights: weights[name].__setitem__(rows, value)


@pytest.mark.parametrize(
    "rows_and_value", [(slice(None), np.nan), (2, np.nan), ([1, 4], np.inf), (slice(None), -np.inf)], ids=["all NaN", "one", "inf", "-inf"]
)
def test_scores_that_mean_nothing_are_told_with_layer_and_token(
    rows_and_value: tuple[object, float], tmp_path: Path, prompt: NDArray[np.int64]
) -> None:
    rows, value = rows_and_value
    with opened(tmp_path, fill(ROUTER.format(2), value, rows)) as (_, pack), Session(plan_for(pack), pack) as session:
        with pytest.raises(ModelError, match="router of layer 2 got a NaN at token 0 "):
            session.prompt(prompt)
        with pytest.raises(RuntimeError, match="no prompt"):
            session.generate()


@pytest.mark.parametrize(("layer", "told"), [(0, "router of layer 1 got a NaN at token"), (3, "128 of 128 logits are NaN")])
def test_a_nan_in_one_experts_weights_is_told(layer: int, told: str, tmp_path: Path, prompt: NDArray[np.int64]) -> None:
    """By the next layer's router; in the last layer by the choice of a token."""
    name = f"blk.{layer}.ffn_up_exps.weight"
    with (
        opened(tmp_path, lambda weights: weights[name].__setitem__((slice(None), 3, 5), np.nan)) as (_, pack),
        Session(plan_for(pack, mode="mapped"), pack) as session,
        pytest.raises(ModelError, match=told),
    ):
        session.prompt(prompt)
        session.generate()


def test_equal_scores_go_to_the_lowest_ids_and_others_are_never_read(tmp_path: Path, prompt: NDArray[np.int64]) -> None:
    """A router of zeros: every token uses experts 0 and 1, nobody 2 to 5."""

    def zeros(weights: Weights) -> None:
        for layer in range(4):
            weights[ROUTER.format(layer)][:] = 0

    with opened(tmp_path, zeros) as (made, pack):
        wanted = oracle.logits(made.geometry, made.weights, prompt)
        plan = plan_for(pack, mode="mapped", file_io="direct", chunk=7)
        with Session(plan, pack, poison=True) as session:
            read = session.prompt(prompt, logits="all")
            touched = session.started.tiers.take_counters()
        assert read.logits is not None and np.abs(read.logits - wanted).max() <= 1e-4 * np.abs(wanted).max()
        assert read.figures.expert_bytes_touched == 2 * sum(at.stride for at in pack.index.layers)
        assert not touched.touched - {(layer, expert) for layer in range(4) for expert in (0, 1)}


@pytest.mark.parametrize("top_k", [1, 6])
def test_as_many_as_there_are(top_k: int, tmp_path: Path, prompt: NDArray[np.int64]) -> None:
    with opened(tmp_path, lambda weights: None, top_k=top_k) as (made, pack):
        wanted = oracle.logits(made.geometry, made.weights, prompt)
        with Session(plan_for(pack, mode="mapped", slots=3, chunk=7), pack) as session:
            found = session.prompt(prompt, logits="all").logits
        assert found is not None and np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize(("top_k", "told"), [(7, "top_k 7 of 6 experts"), (0, "top_k is 0")])
def test_more_than_there_are_or_none_are_refused_at_load(top_k: int, told: str, tmp_path: Path) -> None:
    with pytest.raises(PackError, match=told), opened(tmp_path, lambda weights: None, top_k=top_k):
        pass


@pytest.mark.parametrize("experts", [1, 2, 3, 31, 33, 65])
def test_any_number_of_experts(experts: int, tmp_path: Path, prompt: NDArray[np.int64]) -> None:
    """The kernels are tried up to 1,025; here a whole model, every part of which sizes itself by the count."""
    g = {"num_experts": experts, "top_k": min(experts, 3), "expert_width": 8}
    with opened(tmp_path, lambda weights: None, **g) as (made, pack):
        wanted = oracle.logits(made.geometry, made.weights, prompt[:5])
        with Session(plan_for(pack, mode="mapped", prompt=5), pack) as session:
            found = session.prompt(prompt[:5], logits="all").logits
        assert found is not None and np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()


def test_70_000_rows_of_one_expert(tiny: Packed) -> None:
    """Past 65,535; the same bits as in tiles, and the value by hand."""
    with open_pack(tiny.folder) as pack:
        rng = np.random.default_rng(0)
        x = torch.from_numpy(rng.standard_normal((70_000, 96)).astype(np.float32))
        chosen, weights = torch.full((70_000, 1), 4), torch.full((70_000, 1), 0.5)
        blob = np.fromfile(pack.experts_path, np.uint8, 23_040, offset=pack.index.offset(1, 4))

        class One:
            def blobs(self, layer: int, experts: object) -> Iterator[tuple[int, NDArray[np.uint8]]]:
                yield 4, blob

        sums = []
        for tile in (None, 4096):
            out = MixerOut(x, x, chosen, weights, torch.zeros(70_000, 96), x)
            CpuExperts(pack.index, "f32", tile)(out, 1, One())
            sums.append(out.acc.numpy())
    assert sums[0].tobytes() == sums[1].tobytes()
    gate, up, down = (tiny.made.weights[f"blk.1.ffn_{part}_exps.weight"][4] for part in ("gate", "up", "down"))
    for row in (0, 65_535, 65_536, 69_999):
        hidden = gate @ x[row].numpy().astype(np.float64)
        wanted = 0.5 * down @ (hidden / (1 + np.exp(-hidden)) * (up @ x[row].numpy()))
        np.testing.assert_allclose(sums[0][row], wanted, rtol=1e-4, atol=1e-5)
