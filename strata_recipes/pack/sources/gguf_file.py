"""One GGUF file: metadata and tensor table, every length checked against the file before it is read. Knows no model."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata_recipes.errors import PackError
from strata_recipes.pack.input_file import InputFile, refuse_what_is_no_weight
from strata_recipes.pack.sources.ggml_types import stored_bytes
from strata_recipes.units import MiB

MAX_STRING_BYTES, MAX_NAME_BYTES = 16 * MiB, 256
MAX_ARRAY_VALUES = 1 << 20  # a vocabulary has a quarter of it
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class GgufTensor:
    """A tensor's place. Shape row-major; `num_bytes` None for a type that this build cannot size."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int  # from the start of the file
    num_bytes: int | None
    file: InputFile


@dataclass(frozen=True)
class GgufFile:
    metadata: dict[str, Any]
    tensors: tuple[GgufTensor, ...]


def read_gguf(file: InputFile) -> GgufFile:
    """Metadata and tensor table of a GGUF v3; PackError or FileError where the file is not one, or not whole."""
    refuse_what_is_no_weight(file)
    cursor = _Cursor(file)
    num_tensors, num_keys = _counts(cursor)
    metadata: dict[str, Any] = {}
    for _ in range(num_keys):
        key = cursor.string("a metadata key", MAX_NAME_BYTES)
        if key in metadata:
            raise PackError(f"{file.path} states the metadata key {key!r} twice")
        metadata[key] = _value(cursor, cursor.number("I", key), key)
    raw = [_tensor_info(cursor) for _ in range(num_tensors)]
    start = _align(cursor.offset, _alignment(file, metadata))
    tensors = tuple(_placed(file, start, _alignment(file, metadata), *info) for info in raw)
    _check_extent(file, tensors, start, _alignment(file, metadata))
    return GgufFile(metadata, tensors)


class _Cursor:
    """Walks the header through a window; nothing is read that the file does not hold."""

    def __init__(self, file: InputFile) -> None:
        self.file, self.offset = file, 0
        self._window, self._start = b"", 0

    def take(self, num_bytes: int, what: str) -> bytes:
        if num_bytes > self.file.size - self.offset:
            raise PackError(
                f"{self.file.path} is damaged or cut: {what[:80]} at offset {self.offset:,} wants {num_bytes:,} bytes, "
                f"the file ends at {self.file.size:,}"
            )
        at = self.offset - self._start
        if at + num_bytes > len(self._window):
            size = min(max(num_bytes, MiB), self.file.size - self.offset)
            self._window, self._start, at = self.file.read(self.offset, size), self.offset, 0
        self.offset += num_bytes
        return self._window[at : at + num_bytes]

    def number(self, code: str, what: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0]

    def string(self, what: str, most: int = MAX_STRING_BYTES) -> str:
        size = self.number("Q", what)
        if size > most:
            raise PackError(f"{self.file.path} is damaged: {what} before offset {self.offset:,} states a text of {size:,} bytes")
        try:
            return self.take(size, what).decode("utf-8")
        except UnicodeDecodeError:
            raise PackError(f"{self.file.path} is damaged: {what} before offset {self.offset:,} is not UTF-8 text") from None


def _counts(cursor: _Cursor) -> tuple[int, int]:
    path = cursor.file.path
    magic = cursor.take(4, "the magic number")
    if magic != b"GGUF":
        raise PackError(f"{path} is not a GGUF file: it starts with {magic!r}, not b'GGUF'")
    version = cursor.number("I", "the version")
    if version != 3:
        kind = "big-endian" if version == 3 << 24 else f"version {version}"
        raise PackError(f"{path} is a GGUF of {kind}, this build reads version 3, little-endian")
    num_tensors, num_keys = cursor.number("Q", "the tensor count"), cursor.number("Q", "the key count")
    if 24 * num_tensors + 13 * num_keys > cursor.file.size:  # the shortest entries there can be
        raise PackError(f"{path} is damaged or cut: {num_tensors:,} tensors and {num_keys:,} keys do not fit in {cursor.file.size:,} bytes")
    return num_tensors, num_keys


def _value(cursor: _Cursor, kind: int, key: str) -> Any:
    if kind in _SCALARS:
        return _plain(cursor.take(struct.calcsize("<" + _SCALARS[kind]), key), _SCALARS[kind])[0]
    if kind == _STRING:
        return cursor.string(key)
    if kind == _ARRAY:
        item, count = cursor.number("I", key), cursor.number("Q", key)
        if count > MAX_ARRAY_VALUES:
            raise PackError(
                f"{cursor.file.path} is damaged: the metadata key {key!r} states {count:,} values, at most {MAX_ARRAY_VALUES:,} are read"
            )
        if item == _STRING:
            return [cursor.string(key) for _ in range(count)]
        if item in _SCALARS:
            return _plain(cursor.take(count * struct.calcsize("<" + _SCALARS[item]), key), _SCALARS[item])
    raise PackError(f"{cursor.file.path} is damaged: the metadata key {key!r} is of type {kind}, which GGUF does not have here")


def _plain(data: bytes, code: str) -> list[Any]:
    """Python numbers; a float32 becomes the shortest decimal that it stands for (1e-06, not 9.99999997e-07)."""
    values = np.frombuffer(data, dtype=np.dtype("<" + code))
    return [float(str(v)) for v in values] if code == "f" else values.tolist()


def _tensor_info(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name = cursor.string("a tensor name", MAX_NAME_BYTES)
    num_dims = cursor.number("I", name)
    if num_dims > 4:
        raise PackError(f"{cursor.file.path} is damaged: tensor {name!r} has {num_dims} dimensions, GGUF allows 4")
    shape = tuple(reversed([cursor.number("Q", name) for _ in range(num_dims)]))
    return name, shape, cursor.number("I", name), cursor.number("Q", name)


def _placed(file: InputFile, start: int, alignment: int, name: str, shape: tuple[int, ...], kind: int, offset: int) -> GgufTensor:
    if 0 in shape:
        raise PackError(f"{file.path}: tensor {name!r} has no values, its shape is {list(shape)}")
    if offset % alignment:
        raise PackError(f"{file.path} is damaged: tensor {name!r} starts at {offset:,}, which is no multiple of {alignment}")
    try:
        size = stored_bytes(kind, shape)
    except ValueError as error:
        raise PackError(f"{file.path}: tensor {name!r} of shape {list(shape)} cannot be stored so: {error}") from None
    return GgufTensor(name, shape, kind, start + offset, size, file)


def _check_extent(file: InputFile, tensors: tuple[GgufTensor, ...], start: int, alignment: int) -> None:
    """The table must fill the file to its end, up to one alignment, and no two tensors may overlap."""
    end, last = start, "the header"
    for tensor in sorted(tensors, key=lambda t: t.offset):
        if tensor.offset < end:
            raise PackError(f"{file.path} is damaged: tensor {tensor.name!r} at {tensor.offset:,} overlaps {last!r}, which ends at {end:,}")
        end, last = tensor.offset + (tensor.num_bytes or 0), tensor.name
    if end > file.size:
        raise PackError(f"{file.path} is cut: it has {file.size:,} bytes, its tensor table wants {end:,}: fetch it again")
    if all(t.num_bytes is not None for t in tensors) and file.size > max(_align(end, alignment), start):
        raise PackError(
            f"{file.path} has {file.size:,} bytes, {file.size - end:,} more than its tensor table wants ({end:,}): fetch it again"
        )


def _alignment(file: InputFile, metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment not in [1 << n for n in range(3, 17)]:
        raise PackError(f"{file.path}: general.alignment is {alignment!r}, a power of two from 8 to 65,536 is wanted")
    return alignment


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
