"""A profile names the model that it was learned on, and another model refuses it, both named; one without a name is taken as ever."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strata_recipes.errors import PackError
from strata_recipes.pack.index import PackIndex
from strata_recipes.pack.learned_on import LearnedOn, model_of, to_array
from strata_recipes.pack.profile import learned_on, load_counts, load_profile, save_profile, write_profile
from strata_recipes.schedule.startup import default_order
from tests.plan.cases import small_index

SMALL = dataclasses.replace(small_index(num_experts=3, top_k=1), name="small", pack_id="aa11")  # 4 layers of 3 experts
COUNTS = np.array([[5, 0, 2], [1, 1, 1], [0, 9, 0], [3, 0, 0]])


def saved(path: Path, index: PackIndex = SMALL, **more: Any) -> Path:
    with path.open("wb") as file:
        write_profile(file, COUNTS, index, **more)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = saved(tmp_path / "p.npz")
    assert learned_on(path, SMALL) == LearnedOn("small", "aa11", 4, 3)
    assert (load_counts(path, SMALL) == COUNTS).all()
    assert load_profile(path, SMALL)[:4] == [(2, 1), (0, 0), (3, 0), (0, 2)]


def test_of_experts_alike_the_stated_order_decides(tmp_path: Path) -> None:
    order = default_order(SMALL)[::-1]
    found = load_profile(saved(tmp_path / "p.npz", order=order), SMALL)
    assert found[:4] == [(2, 1), (0, 0), (3, 0), (0, 2)]
    assert found[4:7] == [(1, 2), (1, 1), (1, 0)] and found[7:] == [pair for pair in order if not COUNTS[pair]]


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"pack_id": "bb22", "name": "other"}, r"other \(4 layers of 3 experts, pack bb22\)"),
        ({"geometry": dataclasses.replace(SMALL.geometry, num_experts=4)}, r"small \(4 layers of 4 experts, pack aa11\)"),
        (
            {"geometry": dataclasses.replace(SMALL.geometry, num_layers=5), "pack_id": "declared"},
            r"small \(5 layers of 3 experts, pack decl",
        ),
    ],
)
@pytest.mark.parametrize("load", [load_profile, load_counts])
def test_another_model_refuses_it(load: Any, other: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "p.npz")
    with pytest.raises(PackError, match=rf"was learned on small \(4 layers of 3 experts, pack aa11\), the model here is {sentence}"):
        load(path, dataclasses.replace(SMALL, **other))


def test_declared_sizes_of_the_same_geometry_take_it(tmp_path: Path) -> None:
    declared = dataclasses.replace(SMALL, pack_id="declared", name="the same, declared")
    assert (load_counts(saved(tmp_path / "p.npz"), declared) == COUNTS).all()


def test_one_that_names_no_model_is_taken(tmp_path: Path) -> None:
    save_profile(tmp_path / "old.npz", default_order(SMALL), range(12))
    assert learned_on(tmp_path / "old.npz", SMALL) is None
    assert len(load_profile(tmp_path / "old.npz", SMALL)) == 12


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (np.zeros(3), "`model` has shape \\[3\\] and type float64"),
        (np.frombuffer(b'{"name": "x"}', np.uint8), "lacks 'num_experts'"),
        (np.frombuffer(b"\xff{", np.uint8), "not JSON"),
        (np.zeros(9000, np.uint8), "`model` of 9,128 bytes"),
    ],
)
def test_a_name_that_is_none_is_refused(model: np.ndarray, sentence: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", pairs=np.array(default_order(SMALL)), model=model)
    with pytest.raises(PackError, match=sentence):
        load_profile(tmp_path / "p.npz", dataclasses.replace(SMALL, geometry=dataclasses.replace(SMALL.geometry, num_experts=300)))


def test_a_long_name_fits(tmp_path: Path) -> None:
    long = dataclasses.replace(SMALL, name="模" * 5000)
    assert to_array(model_of(long)).size < 4096 - 128
    assert len(load_profile(saved(tmp_path / "p.npz", long), long)) == 12
