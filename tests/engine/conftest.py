"""The tiny references as packs, made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strata_recipes.pack.reader import Pack, open_pack
from tests.engine.plans import SHIPPED, pack_from, pack_tiny


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_tiny("tiny-q2_0", tmp_path_factory.mktemp("q2_0") / "pack")


@pytest.fixture
def tiny(tiny_folder: Path) -> Iterator[Pack]:
    with open_pack(tiny_folder) as pack:
        yield pack


@pytest.fixture(scope="session")
def mixed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_tiny("tiny-mixed", tmp_path_factory.mktemp("mixed") / "pack")


@pytest.fixture
def mixed(mixed_folder: Path) -> Iterator[Pack]:
    with open_pack(mixed_folder) as pack:
        yield pack


@pytest.fixture(scope="session")
def story_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_from("storyteller", SHIPPED, tmp_path_factory.mktemp("story") / "pack")


@pytest.fixture
def story(story_folder: Path) -> Iterator[Pack]:
    with open_pack(story_folder) as pack:
        yield pack
