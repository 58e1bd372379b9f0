"""What a model source gives to the packer, whatever files it reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from strata_recipes.pack.checksum import SourceFile
from strata_recipes.pack.index import PackIndex, Tensor
from strata_recipes.pack.input_file import InputFile
from strata_recipes.units import MiB

CHUNK_BYTES = 8 * MiB
IN_PACK = -1  # NgramPart.source: the rows lie in the pack's own ngram.bin


@dataclass(frozen=True)
class NgramPart:
    """Consecutive rows of the n-gram table in one file. `source` numbers the source files."""

    source: int
    offset: int
    rows: int


@dataclass(frozen=True)
class NgramLocation:
    """The n-gram table: rows of `row_bytes`, in parts joined in order."""

    tensor: Tensor
    row_bytes: int
    parts: tuple[NgramPart, ...]


class ModelSource(Protocol):
    """An opened source: everything checked, no weight read yet. Dense tensors come in the index's order, in chunks."""

    @property
    def index(self) -> PackIndex: ...
    @property
    def files(self) -> tuple[SourceFile, ...]: ...
    @property
    def unused(self) -> tuple[str, ...]: ...
    @property
    def tokenizer_json(self) -> str | None: ...
    @property
    def chat_template(self) -> str | None: ...
    @property
    def eos_token_ids(self) -> tuple[int, ...]: ...
    @property
    def ngram_location(self) -> NgramLocation | None: ...
    def read_expert(self, layer: int, expert: int) -> bytes: ...
    def dense_tensors(self) -> Iterator[tuple[Tensor, Iterator[bytes]]]: ...
    def ngram_chunks(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


def unused_note(unused: tuple[str, ...]) -> tuple[str, ...]:
    """A note that names what is in the files and not used; none where all is."""
    if not unused:
        return ()
    shown = ", ".join(unused[:3]) + (", .." if len(unused) > 3 else "")
    return (f"{len(unused)} vision or MTP tensors of the source are not used: {shown}",)


def chunks(file: InputFile, offset: int, num_bytes: int) -> Iterator[bytes]:
    """A range of a file in pieces of CHUNK_BYTES."""
    for at in range(0, num_bytes, CHUNK_BYTES):
        yield file.read(offset + at, min(CHUNK_BYTES, num_bytes - at))


def eos_ids(stated: list[Any], vocab: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Union of ids and lists of ids, in order, and a note on those outside the vocabulary, which can never come."""
    flat = [i for entry in stated for i in (entry if isinstance(entry, list) else [entry])]
    ids = list(dict.fromkeys(i for i in flat if isinstance(i, int) and not isinstance(i, bool)))
    outside = [i for i in ids if not 0 <= i < vocab]
    notes = (f"end-of-text ids {outside} lie outside the vocabulary of {vocab:,} and are not used",) if outside else ()
    return tuple(i for i in ids if 0 <= i < vocab), notes
