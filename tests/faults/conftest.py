"""The odd models and their packs, made once, and runs of the whole program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

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


def _fixture(make: Callable[[Path], Made]) -> Callable[..., Packed]:
    @pytest.fixture(scope="session", name=make.__name__)
    def fixture(tmp_path_factory: pytest.TempPathFactory) -> Packed:
        folder = tmp_path_factory.mktemp(make.__name__)
        return packed(make(folder), folder / "pack")

    return fixture


tiny, wide, mixed = _fixture(f1), _fixture(f2), _fixture(f3)
