"""Where a model's pack lies: the stated folder, or one in the user's cache, keyed by what the sources are. Builds nothing."""

from __future__ import annotations

import os
from pathlib import Path

from strata_recipes.config import choices, schema
from strata_recipes.errors import ConfigError, PackError
from strata_recipes.pack.checksum import source_file, sources_key
from strata_recipes.pack.sources import source_path


def pack_folder(model: schema.Model) -> Path:
    """`model.pack`, or the cache folder of these very sources: other bytes, another folder."""
    if model.pack is not None:
        return Path(os.path.expanduser(model.pack))
    return cache_root() / "strata_recipes" / "packs" / source_key(model)


def source_key(model: schema.Model) -> str:
    """xxh3-128 hex of a model's sources: the pack's id."""
    if model.kind is choices.Source.declared:
        raise ConfigError(f"model {model.name!r} is declared, without weights: it has no pack; use it with mode=plan")
    if model.kind is choices.Source.synthetic:
        from strata_recipes.pack.sources.synthetic import synthetic_key

        return synthetic_key(model)
    with source_path(model) as path:
        if model.kind is choices.Source.hf:
            from strata_recipes.pack.sources.safetensors import hf_paths

            return sources_key(source_file(p) for p in hf_paths(path))
        from strata_recipes.pack.sources.gguf_shards import shard_paths

        return sources_key(source_file(p) for p in shard_paths(path))


def cache_root() -> Path:
    """The user's cache folder: $XDG_CACHE_HOME or ~/.cache, %LOCALAPPDATA% on Windows."""
    stated = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", "")
    if stated and Path(stated).is_absolute():
        return Path(stated)
    try:
        return Path.home() / ".cache"
    except RuntimeError as error:
        raise PackError(f"no cache folder can be told ({error}): state model.pack=FOLDER") from error
