"""Packs of the reference checkpoints, built once a session, and models on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numba
import pytest
import torch

from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.pack.reader import Pack, open_pack
from strata_recipes.pack.sources.gguf import GgufSource
from strata_recipes.pack.sources.safetensors import HfSource
from strata_recipes.pack.writer import build_pack
from tests.model.drive import FileExperts
from tests.model.hf_model import MemoryPack, make_model
from tests.model.references import SOURCES

Opened = Callable[[str], Pack]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Small models: a second thread costs more than it brings, much more where other processes want the cores."""
    threads = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    yield
    torch.set_num_threads(threads[0])
    numba.set_num_threads(threads[1])


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """The pack of a reference checkpoint by name."""
    packs: dict[str, Pack] = {}

    def get(name: str) -> Pack:
        if name not in packs:
            folder, path = tmp_path_factory.mktemp("packs") / name, SOURCES[name]
            with HfSource(name, path) if path.is_dir() else GgufSource(name, path) as source:
                build_pack(source, folder)
            packs[name] = open_pack(folder)
        return packs[name]

    yield get
    for pack in packs.values():
        pack.close()


@pytest.fixture(scope="session")
def loaded(opened: Opened) -> Callable[..., tuple[Qwen4Exp, Pack, FileExperts]]:
    """A model on a reference pack, with its experts straight from the file."""

    @cache
    def get(name: str, compute: str = "f32", kv: str = "fp32") -> tuple[Qwen4Exp, Pack, FileExperts]:
        pack = opened(name)
        return Qwen4Exp(pack, compute, kv, max_context=1024, threads=1), pack, FileExperts(pack)

    return get


@pytest.fixture(scope="session")
def small() -> tuple[object, MemoryPack]:
    """A seeded model made with transformers, and its weights as an in-memory pack."""
    model = make_model()
    return model, MemoryPack(model)
