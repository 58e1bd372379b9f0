"""Every file that a user hands over or that we read back: a good one, and how it is read."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from strata_recipes.config.choices import Source
from strata_recipes.config.compose import compose_config, resolved_yaml
from strata_recipes.config.schema import Model
from strata_recipes.pack.profile import load_profile, save_profile, write_profile
from strata_recipes.pack.reader import open_pack
from strata_recipes.pack.sources import open_source
from strata_recipes.pack.writer import build_pack
from strata_recipes.text.token_file import read_ids
from strata_recipes.text.tokenizer import Tokenizer
from tests.pack.checkpoint import make_checkpoint
from tests.pack.gguf_edit import TINY

SHARD = "model-00002-of-00004.safetensors"  # holds the hash buffers too
CHECKPOINT_FILES = {SHARD: 9_000, "config.json": 1 << 20, "model.safetensors.index.json": 1 << 20, "generation_config.json": 1 << 20}
PACK_FILES = {"pack.json": 1 << 20, "dense.safetensors": 9_000, "tokenizer.json": 1 << 20}


@dataclass(frozen=True)
class Target:
    """One kind of file: its place, its good bytes, how many of them are edited, and its reader."""

    path: Path
    good: bytes
    span: int
    use: Callable[[], object]
    examples: int  # in the short form
    wrap: Callable[[bytes], bytes] = bytes  # the damaged bytes to the file's


def targets(folder: Path) -> dict[str, Target]:
    """All of them, their good files made below `folder`."""
    found = {"gguf": _gguf(folder), "ids.npy": _ids(folder, "ids.npy"), "ids.npz": _ids(folder, "ids.npz")}
    found |= _checkpoint(folder) | _pack(folder) | _profile(folder)
    return found | {"resolved.yaml": _resolved(folder)}


def _gguf(folder: Path) -> Target:
    path = folder / "a.gguf"
    return Target(path, TINY.read_bytes(), 25_000, lambda: open_source(Model(source=str(path))).close(), 40)


def _ids(folder: Path, name: str) -> Target:
    path = folder / name
    if name.endswith("z"):
        np.savez(path, ids=np.arange(40, dtype=np.int32))
    else:
        np.save(path, np.arange(40, dtype=np.int32))
    return Target(path, path.read_bytes(), 1 << 20, lambda: read_ids(str(path), 512), 60)


def _checkpoint(folder: Path) -> dict[str, Target]:
    checkpoint = make_checkpoint(folder / "checkpoint")
    found = {}
    for name, span in CHECKPOINT_FILES.items():
        copy = Path(shutil.copytree(checkpoint, folder / f"hf_{name}"))
        use = lambda copy=copy: open_source(Model(kind=Source.hf, source=str(copy))).close()  # noqa: E731
        found[f"hf {name}"] = Target(copy / name, (copy / name).read_bytes(), span, use, 40)
    return found


def _pack(folder: Path) -> dict[str, Target]:
    pack = folder / "pack"
    with open_source(Model(name="tiny", source=str(TINY))) as source:
        build_pack(source, pack)
    found = {}
    for name, span in PACK_FILES.items():
        copy = Path(shutil.copytree(pack, folder / f"pack_{name}"))
        opened = lambda copy=copy: open_pack(copy).close()  # noqa: E731
        words = lambda copy=copy: Tokenizer(copy / "tokenizer.json").encode("A fox.")  # noqa: E731
        use = words if name == "tokenizer.json" else opened
        found[f"pack {name}"] = Target(copy / name, (copy / name).read_bytes(), span, use, 40)
    return found


def _profile(folder: Path) -> dict[str, Target]:
    """The archive, and the array inside an archive that is whole."""
    path = folder / "profile.npz"
    with open_pack(folder / "pack") as pack:
        index = pack.index
    save_profile(path, [(la, ex) for la in range(4) for ex in range(24)])
    use, whole = lambda: load_profile(path, index), path.read_bytes()
    pairs = zipfile.ZipFile(path).read("pairs.npy")
    with path.open("wb") as file:
        write_profile(file, np.ones((4, 24), np.int64), index)
    model = zipfile.ZipFile(path).read("model.npy")

    def named(model: bytes) -> bytes:
        return _zipped(pairs, model)

    return {
        "profile.npz": Target(path, whole, 1 << 20, use, 40),
        "profile pairs": Target(path, pairs, 200, use, 80, _zipped),
        "profile model": Target(path, model, 300, use, 80, named),
    }


def _zipped(pairs: bytes, model: bytes | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("pairs.npy", pairs)
        if model is not None:
            archive.writestr("model.npy", model)
    return buffer.getvalue()


def _resolved(folder: Path) -> Target:
    """What a run left to replay it; each is a run of Hydra."""
    path = folder / "results" / "resolved.yaml"
    path.parent.mkdir()
    good = resolved_yaml(compose_config(["hardware=rtx3060_6gb"]))
    return Target(path, good.encode(), 1 << 20, lambda: compose_config([], str(path.parent), "resolved"), 6)
