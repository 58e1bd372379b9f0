"""Widths that no block divides, blocks of zeros and of the largest scale, and a width of one: right to the oracle, or refused by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from strata_recipes.config.schema import Model
from strata_recipes.engine.session import Session
from strata_recipes.errors import PackError
from strata_recipes.pack.reader import open_pack
from strata_recipes.pack.sources import open_source
from tests.engine.plans import plan_for
from tests.faults import oracle
from tests.faults.conftest import packed
from tests.faults.models import TINY, Formats, Weights, make

Q8: Formats = ("Q8_0", "Q8_0", "Q8_0")


def edges(weights: Weights) -> None:
    """Expert 0: zeros all over; expert 1: one value of 65,504 in a block, and a tail block of zeros."""
    for part in ("gate", "up", "down"):
        values = weights[f"blk.1.ffn_{part}_exps.weight"]
        values[0] = 0
        values[1, 0, :32] = 0
        values[1, 0, 5] = 65_504.0
        values[1, -1, -32:] = 0


@pytest.mark.parametrize(
    ("changes", "formats"),
    [({"expert_width": 1}, ("BF16", "F16", "F32")), ({"expert_width": 32}, Q8), ({"expert_width": 64}, ("Q4_0", "Q8_0", "Q4_0"))],
)
def test_exact_widths_and_one(changes: dict[str, int], formats: Formats, tmp_path: Path, prompt: NDArray[np.int64]) -> None:
    change = edges if changes["expert_width"] > 1 else (lambda weights: None)
    made = make(tmp_path / "m.gguf", dataclasses.replace(TINY, **changes), [formats], change=change)  # type: ignore[arg-type]
    wanted = oracle.logits(made.geometry, made.weights, prompt)
    with open_pack(packed(made, tmp_path / "pack").folder) as pack, Session(plan_for(pack, mode="mapped", slots=3), pack) as session:
        found = session.prompt(prompt, logits="all").logits
    assert found is not None and np.isfinite(wanted).all()
    assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("part", "told"), [("down", "Q8_0 holds 32 values a block, which does not divide a row of 40"), ("gate", "Q2_0 holds 64 .* 96")]
)
def test_a_row_that_its_block_does_not_divide_is_refused_with_tensor_and_numbers(part: str, told: str, tmp_path: Path) -> None:
    """Width 40 in blocks of 32, hidden 96 in blocks of 64."""
    model = read_with_type(make(tmp_path / "m.gguf").path, part, 8 if part == "down" else 42)
    with pytest.raises(PackError, match=rf"'blk.0.ffn_{part}_exps.weight' of shape .*{told}"):
        open_source(Model(source=str(model)))


def read_with_type(path: Path, part: str, kind: int) -> Path:
    """The file again, one tensor's type another."""
    data = bytearray(path.read_bytes())
    name = f"blk.0.ffn_{part}_exps.weight".encode()
    at = data.index(name) + len(name) + 4 + 3 * 8
    assert data[at : at + 4] == (30).to_bytes(4, "little")
    data[at : at + 4] = kind.to_bytes(4, "little")
    path.write_bytes(data)
    return path
