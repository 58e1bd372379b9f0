"""Arrays out of .npy bytes without numpy's own parser, which trusts the stated shape and raises what it likes. Opens nothing."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from math import prod

import numpy as np
from numpy.typing import NDArray

MAGIC, ZIP_MAGIC = b"\x93NUMPY", b"PK\x03\x04"
_HEADER = re.compile(r"\{'descr': '([<>|=][a-zA-Z]\d{0,4})', 'fortran_order': (True|False), 'shape': \(([\d, ]{0,200})\), \}\s*\Z")
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
_ZIP_FAULTS = (ValueError, OSError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error)


def npy_array(data: bytes) -> NDArray[np.generic]:
    """The array of a whole .npy file, read-only; ValueError where header and bytes do not fit. Plain numbers and texts, no objects."""
    version = (data[6], data[7]) if data.startswith(MAGIC) and len(data) > 7 else None
    if version not in _LENGTH_BYTES:
        raise ValueError("it does not begin as a .npy does" if version is None else f".npy version {version[0]}.{version[1]}")
    start = 8 + _LENGTH_BYTES[version]
    stop = start + int.from_bytes(data[8:start], "little")
    match = _HEADER.match(data[start:stop].decode("latin-1"))
    if stop > len(data) or not match:
        raise ValueError("its header is damaged, or states no plain array")
    dtype, shape = _dtype(match[1]), tuple(int(size) for size in match[3].replace(" ", "").split(",") if size)
    if prod(shape) * dtype.itemsize != len(data) - stop:
        raise ValueError(f"{len(data) - stop:,} bytes for shape {list(shape)} of {dtype}")
    return np.frombuffer(data, dtype, offset=stop).reshape(shape, order="F" if match[2] == "True" else "C")


def npz_member(data: bytes, name: str, most_bytes: int) -> NDArray[np.generic]:
    """One array of a .npz file; KeyError with the names there are, ValueError for a damaged one, or one over `most_bytes`."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            if f"{name}.npy" not in names:
                raise KeyError(", ".join(found.removesuffix(".npy") for found in names) or "none")
            member = archive.getinfo(f"{name}.npy")
            if member.file_size > most_bytes:
                raise ValueError(f"`{name}` of {member.file_size:,} bytes")
            content = archive.read(member)
    except _ZIP_FAULTS as error:
        raise ValueError(" ".join(str(error).split())[:100] or type(error).__name__) from None
    return npy_array(content)


def _dtype(text: str) -> np.dtype[np.generic]:
    try:
        found: np.dtype[np.generic] = np.dtype(text)
    except TypeError as error:
        raise ValueError(str(error)) from None
    if found.hasobject or not found.itemsize:
        raise ValueError(f"type {text}, plain numbers are wanted")
    return found
