"""What a mode needs of a model: its facts without a pack for a plan, or its pack, built on the first use, for a run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from strata_recipes.config.choices import Source
from strata_recipes.config.compose import compose_config
from strata_recipes.config.schema import Config, Model
from strata_recipes.errors import ConfigError, PackError
from strata_recipes.modes.progress import bytes_bar
from strata_recipes.pack.cache import pack_folder, source_key
from strata_recipes.pack.declared import declared_index
from strata_recipes.pack.index import PackIndex
from strata_recipes.pack.manifest import MANIFEST_FILE
from strata_recipes.pack.reader import Pack, open_pack
from strata_recipes.pack.sources import open_source
from strata_recipes.pack.writer import build_pack, check_folder
from strata_recipes.schedule.startup import default_order


@dataclass(frozen=True)
class ModelFacts:
    """A model without its weights: what a plan and a prompt need."""

    index: PackIndex
    tokenizer_path: Path | None = None
    chat_template: str | None = None
    eos_token_ids: tuple[int, ...] = ()

    def order(self) -> list[tuple[int, int]]:
        """The default order: a source has no profile."""
        return default_order(self.index)


@contextmanager
def model_facts(model: Model) -> Iterator[ModelFacts | Pack]:
    """Facts for a plan: of the pack where there is one, else of the source; nothing is packed."""
    if model.kind is Source.declared:
        yield ModelFacts(declared_index(model))
    elif (pack_folder(model) / MANIFEST_FILE).exists():
        with _checked(model, open_pack(pack_folder(model))) as pack:
            yield pack
    else:
        check_folder(pack_folder(model))
        with open_source(model) as source, tempfile.TemporaryDirectory() as folder:
            path = None
            if source.tokenizer_json is not None:
                path = Path(folder) / "tokenizer.json"
                path.write_text(source.tokenizer_json, encoding="utf-8")
            yield ModelFacts(source.index, path, source.chat_template, source.eos_token_ids)


def ready_pack(model: Model) -> Pack:
    """The model's pack, built first where it is not there yet."""
    folder = pack_folder(model)
    if not (folder / MANIFEST_FILE).exists():
        write_pack(model, folder, reuse=True)  # another process may have just finished it
    return _checked(model, open_pack(folder))


def _checked(model: Model, pack: Pack) -> Pack:
    """The pack, held against the stated source: a folder left from another model must not answer for this one."""
    if model.kind is Source.synthetic or model.source is not None:
        wanted = source_key(model)
        if pack.index.pack_id != wanted:
            pack.close()
            raise PackError(
                f"{pack.folder} holds pack {pack.index.pack_id} of {pack.index.name!r}, the stated source makes {wanted}: "
                f"name another model.pack, or build this one with mode=pack"
            )
    return pack


def write_pack(model: Model, folder: Path, *, reuse: bool = False) -> None:
    """Builds the pack with a bar of bytes, rate and time left."""
    with open_source(model) as source, bytes_bar(f"packing {model.name}") as advance:
        build_pack(source, folder, advance, reuse=reuse)


def scale_index(config: Config) -> PackIndex | None:
    """The index of the named model that this one is a scale model of."""
    if config.model.scale_of is None:
        return None
    named = compose_config([f"model={config.model.scale_of}"]).model
    if named.kind is not Source.declared:
        raise ConfigError(f"model.scale_of={config.model.scale_of} states no geometry: name a model with one, as qwen38_flash_next_q2_0")
    return declared_index(named)
