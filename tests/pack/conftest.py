"""Models and packs that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata_recipes.config import schema
from strata_recipes.pack.sources import open_source
from strata_recipes.pack.writer import build_pack
from tests.pack.checkpoint import make_checkpoint
from tests.pack.gguf_edit import TINY


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A seeded Hugging Face folder that transformers wrote, in several shards; do not change it."""
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="session")
def tiny_pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pack of tiny-q2_0.gguf; do not change it."""
    folder = tmp_path_factory.mktemp("tiny") / "pack"
    with open_source(schema.Model(name="tiny", source=str(TINY))) as source:
        build_pack(source, folder)
    return folder
