"""Opens a pack: manifest, versions and file sizes are checked before a byte is mapped. Dequantizes nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from strata_recipes.errors import FileError, PackError
from strata_recipes.pack.dense_file import DENSE_FILE, dense_header, dense_offsets
from strata_recipes.pack.index import PackIndex
from strata_recipes.pack.input_file import InputFile, regular_size
from strata_recipes.pack.manifest import EXPERTS_FILE, MANIFEST_FILE, MAX_MANIFEST_BYTES, TOKENIZER_FILE, Manifest, read_manifest
from strata_recipes.pack.ngram import NgramTable
from strata_recipes.pack.profile import PROFILE_FILE, Order, load_profile, with_profile
from strata_recipes.schedule.startup import default_order

_AGAIN = "build the pack again with mode=pack"


def open_pack(folder: Path) -> Pack:
    """A checked pack; PackError or FileError with file, size and size wanted."""
    folder = Path(os.path.expanduser(folder))
    manifest = _manifest(folder)
    _check_size(folder / EXPERTS_FILE, manifest.experts_bytes)
    _check_size(folder / DENSE_FILE, manifest.dense_bytes)
    if manifest.tokenizer_bytes:
        _check_size(folder / TOKENIZER_FILE, manifest.tokenizer_bytes)
    header = dense_header(manifest.dense)
    with InputFile(folder / DENSE_FILE) as dense:
        if dense.read(0, len(header)) != header:
            raise PackError(f"{folder / DENSE_FILE} has another header than pack.json wants: {_AGAIN}")
    return Pack(folder, manifest)


class Pack:
    """An open pack. Dense tensors are views of a read-only mapping, n-gram rows are read one by one."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.experts_path = folder / EXPERTS_FILE
        self.eos_token_ids = manifest.eos_token_ids
        self.chat_template = manifest.chat_template
        self.checksums: NDArray[np.uint64] = manifest.checksum_table()
        self.tokenizer_path: Path | None = folder / TOKENIZER_FILE if manifest.tokenizer_bytes else None
        index = manifest.index()
        profile = folder / PROFILE_FILE
        self._order: Order | None = load_profile(profile, index) if profile.exists() else None
        self.index: PackIndex = with_profile(index, profile, self._order) if self._order else index
        self._tensors = {t.name: t for t in index.dense}
        self._offsets = dense_offsets(index.dense)
        self._mapping: NDArray[np.uint8] | None = None
        self._ngram = NgramTable(manifest.ngram, manifest.sources, folder) if manifest.ngram else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the n-gram files; the mapping goes with the last view of it."""
        self._mapping = None
        if self._ngram:
            self._ngram.close()

    def order(self) -> Order:
        """(layer, expert) pairs, hottest first: the pack's profile, else expert id, then layer."""
        return list(self._order) if self._order else default_order(self.index)

    def dense(self, name: str) -> tuple[NDArray[np.uint8], str, tuple[int, ...]]:
        """Stored bytes (a read-only view, 64-byte aligned), format and shape of a dense tensor; KeyError for an unknown name."""
        tensor = self._tensors[name]
        if self._mapping is None:
            self._mapping = np.memmap(self.folder / DENSE_FILE, np.uint8, "r")
        start = self._offsets[name]
        return self._mapping[start : start + tensor.num_bytes].view(np.ndarray), tensor.format, tensor.shape

    def ngram_rows(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.uint8], str]:
        """Stored bytes [n, row bytes] and format of n-gram rows; only for a model that has the table."""
        assert self._ngram is not None and self.index.ngram is not None, "this model has no n-gram table"
        return self._ngram.rows(rows), self.index.ngram.format


def _manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST_FILE
    if folder.exists() and not folder.is_dir():
        raise PackError(f"{folder} is a file, a pack is a folder: state it as model.source to pack it")
    if not path.exists():
        state = "holds no pack.json: it is no pack, or packing did not finish" if folder.exists() else "does not exist"
        raise PackError(f"{folder} {state}; {_AGAIN}")
    with InputFile(path) as file:
        if file.size > MAX_MANIFEST_BYTES:
            raise PackError(f"{path} has {file.size:,} bytes, a manifest has at most {MAX_MANIFEST_BYTES:,}: {_AGAIN}")
        return read_manifest(file.read(0, file.size), str(path))


def _check_size(path: Path, wanted: int) -> None:
    try:
        size = regular_size(path)
    except FileError as error:
        raise FileError(f"{error}; pack.json wants {wanted:,} bytes: {_AGAIN}") from error
    if size != wanted:
        what = "cut" if size < wanted else "padded"
        raise FileError(f"{path} is {what}: it has {size:,} bytes, pack.json wants {wanted:,}: {_AGAIN}")
