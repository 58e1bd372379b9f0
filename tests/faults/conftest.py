"""The odd models and their packs, made once, and runs of the whole program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from strata_recipes.config.schema import Model
from strata_recipes.pack.sources import open_source
from strata_recipes.pack.writer import build_pack
from tests.end_to_end.conftest import cache, inside, strata  # noqa: F401 - fixtures
from tests.faults.models import Made, f1, f2, f3


@dataclass(frozen=True)
class Packed:
    """A made model and the folder of its pack."""

    made: Made
    folder: Path


def packed(made: Made, folder: Path) -> Packed:
    with open_source(Model(name=made.path.stem, source=str(made.path))) as source:
        build_pack(source, folder)
    return Packed(made, folder)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return packed(f1(tmp_path_factory.mktemp("f1")), tmp_path_factory.mktemp("f1") / "pack")


@pytest.fixture(scope="session")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return packed(f2(tmp_path_factory.mktemp("f2")), tmp_path_factory.mktemp("f2") / "pack")


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return packed(f3(tmp_path_factory.mktemp("f3")), tmp_path_factory.mktemp("f3") / "pack")


@pytest.fixture(scope="session")
def prompt() -> NDArray[np.int64]:
    """20 tokens of the odd models' vocabulary."""
    return np.random.default_rng(1).integers(3, 128, 20)


@pytest.fixture
def ids_file(prompt: NDArray[np.int64], tmp_path: Path) -> Path:
    path = tmp_path / "ids.npy"
    np.save(path, prompt.astype(np.int32))
    return path
