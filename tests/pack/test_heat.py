"""Counts in a profile: read per layer, averaged, and refused where they cannot be."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from strata_recipes.errors import PackError
from strata_recipes.pack.profile import load_heat, load_profile, save_profile
from strata_recipes.schedule.startup import default_order
from tests.plan.cases import small_index

INDEX = small_index(num_experts=3, top_k=1)
ORDER = default_order(INDEX)  # 4 layers of 3 experts, expert id first


def test_heat_is_the_mean_of_each_layers_sorted_counts(tmp_path: Path) -> None:
    save_profile(tmp_path / "p.npz", ORDER, [8, 1, 1, 1, 4, 8, 0, 0, 0, 0, 8, 8])
    # by layer: (8, 4, 0), (1, 8, 0), (1, 0, 8), (1, 0, 8)
    assert load_heat(tmp_path / "p.npz", INDEX) == (8.0, 1.75, 0.0)
    assert load_profile(tmp_path / "p.npz", INDEX) == ORDER


def test_without_counts_there_is_no_heat(tmp_path: Path) -> None:
    save_profile(tmp_path / "p.npz", ORDER)
    assert load_heat(tmp_path / "p.npz", INDEX) == ()
    assert INDEX.heat == dataclasses.replace(INDEX).heat == ()


@pytest.mark.parametrize("counts", [[0] * 12, [-1] + [1] * 11])
def test_counts_that_mean_nothing_are_refused(counts: list[int], tmp_path: Path) -> None:
    save_profile(tmp_path / "p.npz", ORDER, counts)
    with pytest.raises(PackError, match="12 counts for 12 experts"):
        load_heat(tmp_path / "p.npz", INDEX)


def test_counts_of_another_form_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", pairs=np.array(ORDER, np.int32), counts=np.ones((12, 2), np.int64))
    with pytest.raises(PackError, match=r"`counts` has shape \[12, 2\]"):
        load_heat(tmp_path / "p.npz", INDEX)
