"""The float64 oracle itself, against logits that transformers gave for the public checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernels_numba.formats import BY_GGML_TYPE
from kernels_numba.reference import dequantize
from strata_recipes.config.schema import Model
from strata_recipes.pack.sources import open_source
from tests.faults import oracle
from tests.pack.gguf_edit import TINY, read

ORACLE = Path(__file__).parents[1] / "data" / "oracle"


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    values = {}
    for part in read(TINY).tensors:
        floats = dequantize(np.frombuffer(part.data, np.uint8), BY_GGML_TYPE[part.type].name)
        values[part.name] = floats.astype(np.float64).reshape(list(reversed(part.dims)))
    return values


@pytest.mark.parametrize("length", ["short", "mid"])
def test_it_is_the_public_models(length: str, weights: dict[str, np.ndarray]) -> None:
    """`mid` is 130 tokens with a budget of 64: the choice of blocks is checked too. One of its tokens has a choice so close that
    float32 and float64 take different ones."""
    stored = np.load(ORACLE / f"tiny-q2_0.{length}.npz")
    with open_source(Model(source=str(TINY))) as source:
        found = oracle.logits(source.index.geometry, weights, stored["ids"])
    errors = np.linalg.norm(found - stored["logits"], axis=1) / np.linalg.norm(stored["logits"], axis=1)
    close_calls = {"short": 0, "mid": 1}[length]
    assert np.sort(errors)[: errors.size - close_calls].max() <= 1e-5 and errors.max() <= 2e-2
