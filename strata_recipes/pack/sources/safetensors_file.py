"""One safetensors file: header and tensor places, every length checked against the file before it is read. Knows no model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strata_recipes.errors import PackError
from strata_recipes.pack.decode import parse_json
from strata_recipes.pack.input_file import InputFile, refuse_what_is_no_weight

MAX_HEADER_BYTES = 32 << 20
_ITEM_BYTES = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
    "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
}  # fmt: skip


@dataclass(frozen=True)
class StoredTensor:
    """A tensor's place. `offset` counts from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int
    file: InputFile


def read_safetensors(file: InputFile) -> dict[str, StoredTensor]:
    """All tensors of a file; PackError or FileError where it is not one, or not exactly as long as its header says."""
    refuse_what_is_no_weight(file)
    header, start = _header(file)
    header.pop("__metadata__", None)
    tensors = {name: _tensor(file, name, entry, start) for name, entry in header.items()}
    _check_extent(file, list(tensors.values()), start)
    return tensors


def _header(file: InputFile) -> tuple[dict[str, Any], int]:
    if file.size < 8:
        raise PackError(f"{file.path} has {file.size} bytes, a safetensors file has at least 8: fetch it again")
    size = int.from_bytes(file.read(0, 8), "little")
    if size > file.size - 8:
        raise PackError(
            f"{file.path} has {file.size:,} bytes, its header alone would take {size + 8:,}: "
            "it is cut, or no safetensors file; fetch it again"
        )
    if size > MAX_HEADER_BYTES:
        raise PackError(f"{file.path} states a header of {size:,} bytes, at most {MAX_HEADER_BYTES:,} are read")
    header = parse_json(file.read(8, size), f"the header of {file.path}")
    if not isinstance(header, dict):
        raise PackError(f"the header of {file.path} is damaged: it is no object")
    return header, 8 + size


def _tensor(file: InputFile, name: str, entry: Any, start: int) -> StoredTensor:
    fields = entry if isinstance(entry, dict) else {}
    dtype, shape, span = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    good = isinstance(dtype, str) and _counts(shape) and _counts(span) and len(span) == 2  # type: ignore[arg-type]
    if not good:
        raise PackError(f"{file.path} is damaged: its header does not give type, shape and place of tensor {name[:80]!r}")
    assert isinstance(dtype, str) and shape is not None and span is not None
    size = _ITEM_BYTES.get(dtype, 0)
    for length in shape:
        size *= length
    if dtype in _ITEM_BYTES and span[1] - span[0] != size:
        raise PackError(
            f"{file.path} is damaged: tensor {name[:80]!r}, {dtype} of shape {shape}, wants {size:,} bytes and has {span[1] - span[0]:,}"
        )
    return StoredTensor(name, dtype, tuple(shape), start + span[0], span[1] - span[0], file)


def _check_extent(file: InputFile, tensors: list[StoredTensor], start: int) -> None:
    """The tensors must fill the file without holes, to its last byte."""
    end = start
    for tensor in sorted(tensors, key=lambda t: (t.offset, t.num_bytes)):
        if tensor.offset != end or tensor.num_bytes < 0:
            raise PackError(
                f"{file.path} is damaged: tensor {tensor.name[:80]!r} starts at {tensor.offset:,}, the one before ends at {end:,}"
            )
        end += tensor.num_bytes
    if file.size < end:
        raise PackError(f"{file.path} is cut: it has {file.size:,} bytes, its header wants {end:,}: fetch it again")
    if file.size > end:
        raise PackError(f"{file.path} has {file.size:,} bytes, {file.size - end:,} more than its header wants ({end:,}): fetch it again")


def _counts(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= 16
        and all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 62 for v in value)
    )
