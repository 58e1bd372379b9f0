"""profile.npz: (layer, expert) pairs, hottest first, as array `pairs` [n, 2]. Knows how to read one, not how it was measured."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import xxhash

from strata_recipes.errors import PackError
from strata_recipes.pack.index import PackIndex
from strata_recipes.pack.input_file import InputFile
from strata_recipes.schedule.startup import default_order

PROFILE_FILE = "profile.npz"
Order = list[tuple[int, int]]


def load_profile(path: Path, index: PackIndex) -> Order:
    """All pairs of the model: the file's, hottest first, then those that it does not list in the default order."""
    pairs = _read_pairs(path, limit=index.geometry.total_experts)
    g = index.geometry
    bad = [p for p in pairs if not (0 <= p[0] < g.num_layers and 0 <= p[1] < g.num_experts)]
    if bad:
        raise PackError(
            f"{path} lists (layer, expert) {bad[0]}, the model has {g.num_layers} layers of {g.num_experts} experts: it is another model's"
        )
    listed = set(pairs)
    if len(listed) != len(pairs):
        raise PackError(f"{path} lists {len(pairs) - len(listed)} pairs twice")
    return pairs + [p for p in default_order(index) if p not in listed]


def order_id(order: Order) -> str:
    """xxh3-64 hex over the whole order: what a plan records of it."""
    return xxhash.xxh3_64_hexdigest(np.array(order, "<i4").tobytes())


def save_profile(path: Path, order: Order) -> None:
    """Writes pairs, hottest first."""
    np.savez(path, pairs=np.array(order, np.int32).reshape(-1, 2))


def _read_pairs(path: Path, limit: int) -> Order:
    with InputFile(path) as file:
        if file.size > 32 * limit + 4096:
            raise PackError(f"{path} has {file.size:,} bytes, a profile of {limit:,} experts has at most {32 * limit + 4096:,}")
        data = file.read(0, file.size)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            member = archive.getinfo("pairs.npy")
            if member.file_size > 32 * limit + 4096:
                raise ValueError(f"`pairs` of {member.file_size:,} bytes")
            array = _array(archive.read(member))
    except KeyError:
        raise PackError(f"{path} is no profile: it holds no array `pairs`") from None
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError, SyntaxError) as error:
        why = " ".join(str(error).split())[:100] or type(error).__name__
        raise PackError(f"{path} is no profile, or damaged: {why}") from None
    return [(int(layer), int(expert)) for layer, expert in array]


def _array(data: bytes) -> np.ndarray:
    """The .npy inside, its stated shape held against its bytes before an array is made."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f".npy version {version}")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if len(shape) != 2 or shape[1] != 2 or dtype.kind not in "iu" or fortran:
        raise ValueError(f"`pairs` has shape {shape} and type {dtype}, [n, 2] whole numbers are wanted")
    body = data[stream.tell() :]
    if shape[0] * 2 * dtype.itemsize != len(body):
        raise ValueError(f"`pairs` has {len(body)} bytes for shape {shape} of {dtype}")
    return np.frombuffer(body, dtype).reshape(shape)
