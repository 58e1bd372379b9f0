"""dense.safetensors: stored bytes of the dense tensors as U8, one axis, each padded to 64 bytes so that every start is aligned.

Format, shape and bytes of a tensor stand in pack.json, and in this file's own metadata for a reader that has only it.
The header follows from the list of tensors alone. Opens nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from strata_recipes.pack.index import Tensor

DENSE_FILE = "dense.safetensors"
_ALIGNMENT = 64


def padded_bytes(tensor: Tensor) -> int:
    """Stored bytes with the zeros that align the next tensor."""
    return -(-tensor.num_bytes // _ALIGNMENT) * _ALIGNMENT


def dense_header(tensors: Sequence[Tensor]) -> bytes:
    """Length word and JSON header, padded so that the data starts on 64 bytes."""
    formats = {t.name: [t.format, list(t.shape), t.num_bytes] for t in tensors}
    header: dict[str, object] = {"__metadata__": {"strata": json.dumps(formats, separators=(",", ":"))}}
    for t, start in zip(tensors, _starts(tensors), strict=True):
        size = padded_bytes(t)
        header[t.name] = {"dtype": "U8", "shape": [size], "data_offsets": [start, start + size]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def dense_offsets(tensors: Sequence[Tensor]) -> dict[str, int]:
    """Where each tensor starts in the file."""
    start = len(dense_header(tensors))
    return {t.name: start + at for t, at in zip(tensors, _starts(tensors), strict=True)}


def dense_file_bytes(tensors: Sequence[Tensor]) -> int:
    """Size of the whole file."""
    return len(dense_header(tensors)) + sum(map(padded_bytes, tensors))


def _starts(tensors: Sequence[Tensor]) -> Iterator[int]:
    at = 0
    for t in tensors:
        yield at
        at += padded_bytes(t)
