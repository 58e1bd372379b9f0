"""Token ids from a .npy or .npz file, checked before use. Does not know prompts or models, only the vocabulary's size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from strata_recipes.errors import FileError
from strata_recipes.npy import MAGIC, ZIP_MAGIC, npy_array, npz_member
from strata_recipes.text.user_file import MOST_BYTES, read_user_file

_HOW = "write it with numpy.save(file, ids) or numpy.savez(file, ids=ids)"


def read_ids(path: str, vocab: int | None = None) -> np.ndarray:
    """The ids as int32 [tokens]; with `vocab` stated, each must be below it."""
    ids = _array(path)
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


def _array(name: str) -> NDArray[np.generic]:
    data = read_user_file(name, "workload.token_ids_file")
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
