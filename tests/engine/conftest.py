"""The tiny references as packs, made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strata_recipes.config.choices import Source
from strata_recipes.config.schema import Model
from strata_recipes.pack.reader import Pack, open_pack
from strata_recipes.pack.sources import open_source
from strata_recipes.pack.writer import build_pack
from tests.engine.held import links_own_clock  # noqa: F401 - a fixture
from tests.engine.plans import SHIPPED, pack_from, pack_tiny
from tests.pack.checkpoint import make_checkpoint


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


@pytest.fixture(scope="session")
def hf_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a checkpoint in bf16, as transformers saves one."""
    folder = tmp_path_factory.mktemp("hf")
    with open_source(Model(name="hf", kind=Source.hf, source=str(make_checkpoint(folder / "checkpoint", num_experts=24)))) as source:
        build_pack(source, folder / "pack")
    return folder / "pack"


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
