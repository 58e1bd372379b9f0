"""Token ids from a .npy or .npz file, checked before use. Does not know prompts or models, only the vocabulary's size."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from strata_recipes.errors import FileError

_NPY, _ZIP = b"\x93NUMPY", b"PK\x03\x04"
_HOW = "write it with numpy.save(file, ids) or numpy.savez(file, ids=ids)"


def read_ids(path: str, vocab: int | None = None) -> np.ndarray:
    """The ids as int32 [tokens]; with `vocab` stated, each must be below it."""
    ids = _array(Path(path), path)
    if ids.ndim != 1:
        raise FileError(f"{path} holds ids of shape {list(ids.shape)}, wanted one dimension: {_HOW}")
    if ids.dtype.kind not in "iu":
        raise FileError(f"{path} holds ids of type {ids.dtype}, wanted whole numbers (int32): {_HOW}")
    if len(ids) == 0:
        raise FileError(f"{path} holds 0 token ids, wanted at least 1: {_HOW}")
    limit = np.iinfo(np.int32).max + 1 if vocab is None else vocab
    bad = np.flatnonzero((ids < 0) | (ids >= limit))
    if len(bad):
        at = int(bad[0])
        raise FileError(
            f"{path} holds id {int(ids[at])} at position {at}, the vocabulary has {limit} tokens (0 to {limit - 1}): correct the file"
        )
    return ids.astype(np.int32)


def _array(path: Path, name: str) -> np.ndarray:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_NPY))
            file.seek(0)
            if magic != _NPY and not magic.startswith(_ZIP):
                raise FileError(f"{name} is neither a .npy nor a .npz file (it begins with {magic!r}): {_HOW}")
            loaded = np.load(file, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else _member(loaded, name)
    except OSError as error:
        raise FileError(f"{name} (workload.token_ids_file) cannot be read: {error.strerror or error} (errno {error.errno})") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise FileError(f"{name} cannot be read as token ids ({error}): {_HOW}") from error


def _member(archive: np.lib.npyio.NpzFile, name: str) -> np.ndarray:
    if "ids" not in archive:
        raise FileError(f"{name} has no array named ids, it has {', '.join(archive.files) or 'none'}: {_HOW}")
    return np.asarray(archive["ids"])
