"""Token ids from a .npy or .npz file, checked before use. Does not know prompts or models, only the vocabulary's size."""

from __future__ import annotations

from pathlib import Path
from stat import S_ISDIR, S_ISREG

import numpy as np
from numpy.typing import NDArray

from strata_recipes.errors import FileError
from strata_recipes.npy import MAGIC, ZIP_MAGIC, npy_array, npz_member

MOST_BYTES = 32 << 20  # eight million ids, far above any context
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


def _array(path: Path, name: str) -> NDArray[np.generic]:
    data = _content(path, name)
    try:
        if data.startswith(ZIP_MAGIC):
            return npz_member(data, "ids", MOST_BYTES)
        if data.startswith(MAGIC):
            return npy_array(data)
    except KeyError as error:
        raise FileError(f"{name} has no array named ids, it has {error.args[0]}: {_HOW}") from error
    except ValueError as error:
        raise FileError(f"{name} cannot be read as token ids ({error}): {_HOW}") from error
    raise FileError(f"{name} is neither a .npy nor a .npz file (it begins with {data[: len(MAGIC)]!r}): {_HOW}")


def _content(path: Path, name: str) -> bytes:
    try:
        status = path.stat()
        if not S_ISREG(status.st_mode) and not S_ISDIR(status.st_mode):
            raise FileError(f"{name} (workload.token_ids_file) is a pipe or a device, a regular file is wanted: {_HOW}")
        if status.st_size > MOST_BYTES:
            raise FileError(f"{name} has {status.st_size:,} bytes, at most {MOST_BYTES:,} are read: shorten the prompt")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        code = f" (errno {error.errno})" if isinstance(error, OSError) else ""
        raise FileError(f"{name} (workload.token_ids_file) cannot be read: {getattr(error, 'strerror', None) or error}{code}") from error
