"""Rows of the n-gram table, read one by one from where the source has them: never the whole table."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strata_recipes.errors import FileError, PackError
from strata_recipes.pack.checksum import SourceFile, source_file
from strata_recipes.pack.input_file import InputFile, regular_size
from strata_recipes.pack.manifest import NGRAM_FILE
from strata_recipes.pack.sources.source import IN_PACK, NgramLocation


class NgramTable:
    """Files are opened at their first row. The files themselves are checked when the table is made."""

    def __init__(self, location: NgramLocation, sources: Sequence[SourceFile], folder: Path) -> None:
        self._location = location
        self._starts = [0]
        for part in location.parts:
            self._starts.append(self._starts[-1] + part.rows)
        self._paths = {IN_PACK: folder / NGRAM_FILE} | {n: s.real_path for n, s in enumerate(sources)}
        self._files: dict[int, InputFile] = {}
        for number in {part.source for part in location.parts}:
            if number == IN_PACK:
                _check_own(self._paths[number], location.tensor.num_bytes)
            else:
                _check_source(sources[number], folder)

    def rows(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Stored bytes of rows, [n, row bytes]; IndexError for a row that the table does not have."""
        size = self._location.row_bytes
        out = np.empty((len(rows), size), np.uint8)
        for i, row in enumerate(rows.tolist()):
            if not 0 <= row < self._starts[-1]:
                raise IndexError(f"n-gram row {row} of a table of {self._starts[-1]}")
            at = bisect_right(self._starts, row) - 1
            part = self._location.parts[at]
            data = self._file(part.source).read(part.offset + (row - self._starts[at]) * size, size)
            out[i] = np.frombuffer(data, np.uint8)
        return out

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _file(self, number: int) -> InputFile:
        if number not in self._files:
            self._files[number] = InputFile(self._paths[number])
        return self._files[number]


def _check_own(path: Path, wanted: int) -> None:
    size = regular_size(path)
    if size != wanted:
        raise PackError(f"{path} has {size:,} bytes, pack.json wants {wanted:,}: build the pack again with mode=pack")


def _check_source(stated: SourceFile, folder: Path) -> None:
    """The file that holds the table must still be the one that was packed."""
    again = f"the n-gram table of pack {folder} is read from it: put it back, or build the pack again with mode=pack"
    try:
        found = source_file(stated.real_path)
    except FileError as error:
        raise FileError(f"{error}; {again}") from error
    if found.size != stated.size:
        raise FileError(f"{stated.real_path} has {found.size:,} bytes, it had {stated.size:,} when it was packed; {again}")
    if found.digest != stated.digest:
        raise FileError(f"{stated.real_path} has the same {found.size:,} bytes but other content than when it was packed; {again}")
