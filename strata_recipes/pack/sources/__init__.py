"""Opens the model source that a config names. Knows no file format."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from strata_recipes.config import choices, schema
from strata_recipes.errors import ConfigError, FileError, PackError
from strata_recipes.pack.checksum import PACKAGE
from strata_recipes.pack.input_file import stated_as
from strata_recipes.pack.sources.source import ModelSource

SHIPPED = {"shipped:storyteller": PACKAGE / "assets" / "storyteller.gguf"}  # what model.source may name besides a path


@contextmanager
def source_path(model: schema.Model) -> Iterator[Path]:
    """The file or folder that the weights come from; what is found wrong with it in the block names model.source."""
    if model.source is None:
        raise PackError(f"model {model.name!r} of kind {model.kind.name} states no model.source: name the file or folder that holds it")
    path = SHIPPED.get(model.source) or Path(os.path.expanduser(model.source))
    with stated_as("model.source", model.source):
        if model.kind is choices.Source.gguf and os.path.isdir(path):  # unlike Path.is_dir it raises nothing
            raise FileError(f"{path} is a folder, model=gguf wants a file: name the .gguf in it, or use model=hf for a Hugging Face folder")
        yield path


def open_source(model: schema.Model) -> ModelSource:
    """The opened, checked source of a model's weights; PackError or FileError says what is wrong with it."""
    if model.kind is choices.Source.declared:
        raise ConfigError(
            f"model {model.name!r} is declared, without weights: use it with mode=plan, or state model=gguf model.source=FILE"
        )
    if model.kind is choices.Source.synthetic:
        from strata_recipes.pack.sources.synthetic import SyntheticSource

        return SyntheticSource(model)
    with source_path(model) as path:
        if model.kind is choices.Source.hf:
            from strata_recipes.pack.sources.safetensors import HfSource

            return HfSource(model.name, path)
        from strata_recipes.pack.sources.gguf import GgufSource

        return GgufSource(model.name, path)
