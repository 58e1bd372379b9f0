"""Damaged files of every kind, the short form: whatever bytes change, the answer is one sentence, and little memory is taken for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from strata_recipes.errors import FileError, PackError
from strata_recipes.pack.reader import open_pack
from tests.fuzz.damage import CUT, EDITS, Edit, damaged, refused_or_fine
from tests.fuzz.targets import CHECKPOINT_FILES, PACK_FILES, Target, targets

NAMES = ["gguf", "ids.npy", "ids.npz", "profile.npz", "profile pairs", "profile model", "resolved.yaml"]
NAMES += [f"hf {name}" for name in CHECKPOINT_FILES] + [f"pack {name}" for name in PACK_FILES]
NESTED = ["pack pack.json", "pack tokenizer.json", "hf config.json", "hf model.safetensors.index.json", "resolved.yaml"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def made(folder: Path) -> dict[str, Target]:
    return targets(folder)


@pytest.mark.parametrize("name", NAMES)
def test_one_sentence_or_a_good_file(name: str, made: dict[str, Target]) -> None:
    target = made[name]
    assert not refused_or_fine(target.path, target.wrap(target.good), target.use), "the good file is read"

    @settings(max_examples=target.examples)
    @given(edits=EDITS, cut=CUT)
    def check(edits: list[Edit], cut: float | None) -> None:
        refused_or_fine(target.path, target.wrap(damaged(target.good, edits, cut, target.span)), target.use)

    check()
    target.path.write_bytes(target.wrap(target.good))


def test_all_targets_are_tried(made: dict[str, Target]) -> None:
    assert sorted(made) == sorted(NAMES)


@pytest.mark.parametrize("name", NESTED)
def test_deep_nesting_is_refused(name: str, made: dict[str, Target]) -> None:
    target = made[name]
    assert refused_or_fine(target.path, b'{"a":' + b"[" * 200_000, target.use)
    target.path.write_bytes(target.good)


def test_a_changed_digit_of_a_pack_never_goes_unseen(folder: Path, made: dict[str, Target]) -> None:
    copy = Path(shutil.copytree(folder / "pack", folder / "digit"))
    data = (copy / "pack.json").read_bytes()
    rng = np.random.default_rng(0)
    digits = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
    for at in rng.choice(digits, 60, replace=False):
        changed = bytearray(data)
        changed[at] = ord("0") + (changed[at] - ord("0") + 1) % 10
        (copy / "pack.json").write_bytes(changed)
        with pytest.raises((PackError, FileError)):
            open_pack(copy)
