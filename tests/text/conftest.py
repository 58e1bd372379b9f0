"""The shipped demo's tokenizer, read from its GGUF by this folder's own reader."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strata_recipes.pack.sources.gguf_tokenizer import tokenizer_json
from strata_recipes.text.tokenizer import Tokenizer
from tests.text.gguf_metadata import gguf_metadata

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def metadata() -> dict[str, Any]:
    return gguf_metadata(ROOT / "strata_recipes" / "assets" / "storyteller.gguf")


@pytest.fixture(scope="session")
def tokenizer_path(metadata: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pack") / "tokenizer.json"
    path.write_text(tokenizer_json(metadata) or "", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tokenizer(tokenizer_path: Path) -> Tokenizer:
    return Tokenizer(tokenizer_path)


@pytest.fixture(scope="session")
def bos_tokenizer_path(metadata: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same tokenizer, putting token 0 before every text."""
    path = tmp_path_factory.mktemp("bos") / "tokenizer.json"
    asked = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 0}
    path.write_text(tokenizer_json(metadata | asked) or "", encoding="utf-8")
    return path


@pytest.fixture
def facts(metadata: dict[str, Any], tokenizer_path: Path) -> SimpleNamespace:
    """The demo as far as a prompt needs it."""
    return SimpleNamespace(
        index=SimpleNamespace(geometry=SimpleNamespace(vocab=1024)),
        tokenizer_path=tokenizer_path,
        chat_template=metadata["tokenizer.chat_template"],
        eos_token_ids=(2,),
    )
