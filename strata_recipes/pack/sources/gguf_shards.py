"""A GGUF model in one file or split: finds all shards from any one of them. Knows no model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strata_recipes.errors import FileError, PackError
from strata_recipes.pack.input_file import InputFile
from strata_recipes.pack.sources.gguf_file import GgufFile, GgufTensor, read_gguf

_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf\Z", re.DOTALL)


def shard_paths(path: Path) -> list[Path]:
    """All files of the model, first shard first; by name alone, so a missing shard is found before anything is opened."""
    match = _SHARD.match(path.name)
    if not match or int(match["count"]) < 1:
        return [path]
    count = int(match["count"])
    paths = [path.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
    missing = [p for p in paths if not p.exists()]
    if path in missing:  # its own sentence: a download that did not finish, a broken link
        InputFile(path)
    if missing:
        raise FileError(f"{path} is a shard of {count}, and {missing[0]} is not there ({len(missing)} missing): fetch it")
    return paths


def read_shards(files: Sequence[InputFile]) -> GgufFile:
    """First shard's metadata and all tensors, each shard checked for its place in the split."""
    tensors: dict[str, GgufTensor] = {}
    first: dict[str, Any] = {}
    for number, file in enumerate(files):
        shard = read_gguf(file)
        _check_place(file.path, shard.metadata, number, len(files))
        first = first or shard.metadata
        for tensor in shard.tensors:
            if tensor.name in tensors:
                raise PackError(f"tensor {tensor.name!r} is in {tensors[tensor.name].file.path} and again in {file.path}")
            tensors[tensor.name] = tensor
    stated = _whole(files[0].path, first, "split.tensors.count", len(tensors))
    if stated != len(tensors):
        raise PackError(
            f"{files[0].path} states {stated} tensors over all shards, {len(tensors)} were found: the shards are not of one model"
        )
    return GgufFile(first, tuple(tensors.values()))


def _check_place(path: Path, metadata: dict[str, Any], number: int, count: int) -> None:
    stated = _whole(path, metadata, "split.count", 1)
    if max(stated, 1) != count:
        raise PackError(
            f"{path} says it is one of {stated} shards, its name says {count}: give it back the name that it was published under"
        )
    place = _whole(path, metadata, "split.no", 0)
    if count > 1 and place != number:
        raise PackError(f"{path} says it is shard {place} counted from 0, its name says {number}: two shards are swapped")


def _whole(path: Path, metadata: dict[str, Any], key: str, missing: int) -> int:
    value = metadata.get(key, missing)
    if not isinstance(value, int):
        raise PackError(f"{path}: the metadata key {key} is {value!r}, a whole number is wanted")
    return value
