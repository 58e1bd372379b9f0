"""The files of a Hugging Face folder, and the tensors in all its shards, index and shards held against each other. Knows no model."""

from __future__ import annotations

import re
import stat
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strata_recipes.errors import FileError, PackError
from strata_recipes.pack.decode import parse_json
from strata_recipes.pack.input_file import PARTIAL_SUFFIXES, InputFile, os_sentence
from strata_recipes.pack.sources.safetensors_file import StoredTensor, read_safetensors

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_NUMBERED = re.compile(r".*-\d{5}-of-\d{5}\.safetensors\Z")
_MAX_JSON_BYTES = 32 << 20


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a small file."""
    with InputFile(path) as file:
        if file.size > _MAX_JSON_BYTES:
            raise PackError(f"{path} has {file.size:,} bytes, at most {_MAX_JSON_BYTES:,} are read")
        data = parse_json(file.read(0, file.size), str(path))
    if not isinstance(data, dict):
        raise PackError(f"{path} is damaged: an object is wanted")
    return data


def weight_paths(folder: Path) -> list[Path]:
    """The shards in name order, all of them there; FileError or PackError for what is missing or too many."""
    try:
        is_folder = stat.S_ISDIR(folder.stat().st_mode)
    except FileNotFoundError:
        raise FileError(f"{folder} does not exist") from None
    except (OSError, ValueError) as error:
        raise FileError(os_sentence(folder, "cannot be looked at", error)) from error
    if not is_folder:
        raise FileError(f"{folder} is a file: model=hf wants the folder that holds config.json")
    if not (folder / INDEX).exists():
        return [_single(folder)]
    names = sorted(set(_weight_map(folder).values()))
    strays = sorted(p.name for p in folder.glob("*.safetensors") if p.name not in names and (_NUMBERED.match(p.name) or p.name == SINGLE))
    if strays:
        raise PackError(f"{folder / strays[0]} is not in {INDEX}: the folder holds shards of two downloads; move it away")
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        more = f" ({len(missing)} of {len(names)} shards are missing)"
        InputFile(folder / missing[0]) if _partial(folder / missing[0]) else None
        raise FileError(f"{folder / missing[0]} is not there, but {INDEX} names it{more}: fetch it")
    return [folder / name for name in names]


def read_weights(folder: Path, files: Sequence[InputFile]) -> dict[str, StoredTensor]:
    """All tensors by name; with an index, each must be in the shard that the index names, and nowhere else."""
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        for name, tensor in read_safetensors(file).items():
            if name in tensors:
                raise PackError(
                    f"tensor {name!r} is in {tensors[name].file.path} and again in {file.path}: one of them is of another download"
                )
            tensors[name] = tensor
    if (folder / INDEX).exists():
        _check_index(folder, _weight_map(folder), tensors)
    return tensors


def _check_index(folder: Path, weight_map: dict[str, str], tensors: dict[str, StoredTensor]) -> None:
    for name, shard in weight_map.items():
        if name not in tensors:
            raise PackError(f"{folder / INDEX} says that tensor {name!r} is in {shard}, which is there and does not hold it")
        found = tensors[name].file.path.name
        if found != shard:
            raise PackError(f"{folder / INDEX} says that tensor {name!r} is in {shard}, it is in {found}: the index is of another download")
    extra = [t for name, t in tensors.items() if name not in weight_map]
    if extra:
        raise PackError(f"{extra[0].file.path} holds tensor {extra[0].name!r}, which {INDEX} does not name ({len(extra)} such tensors)")


def _weight_map(folder: Path) -> dict[str, str]:
    path = folder / INDEX
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(v, str) for v in weight_map.values()):
        raise PackError(f"{path} is damaged: it has no weight_map of tensor names to files")
    for name in set(weight_map.values()):
        if not name.endswith(".safetensors") or Path(name).name != name or "\\" in name or "\0" in name:
            raise PackError(f"{path} names {name[:80]!r}, which is no .safetensors file of its own folder")
    return weight_map


def _single(folder: Path) -> Path:
    path = folder / SINGLE
    if path.exists() or path.is_symlink() or _partial(path):
        return path  # what is wrong with it is said when it is opened
    found = Counter("numbered" if _NUMBERED.match(p.name) else "other" for p in folder.glob("*.safetensors"))
    if found["numbered"]:
        raise FileError(f"{folder} holds {found['numbered']} numbered shards but no {INDEX}: fetch it")
    partial = sorted(p.name for suffix in PARTIAL_SUFFIXES for p in folder.glob(f"*{suffix}"))
    if partial:
        raise FileError(f"{folder} holds only a partial download ({partial[0]}): the download did not finish, start it again")
    raise FileError(f"{folder} holds neither {SINGLE} nor {INDEX}")


def _partial(path: Path) -> bool:
    return path.is_symlink() or any(path.with_name(path.name + suffix).exists() for suffix in PARTIAL_SUFFIXES)
