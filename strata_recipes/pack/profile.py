"""profile.npz: (layer, expert) pairs, hottest first, as array `pairs` [n, 2], and how often each was chosen, as `counts` [n, 1].

A file without counts orders experts as well. Knows how to read and write one, not how it was measured.
"""

from __future__ import annotations

import dataclasses
import io
import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np
import xxhash

from strata_recipes.errors import PackError
from strata_recipes.pack.index import PackIndex
from strata_recipes.pack.input_file import InputFile
from strata_recipes.schedule.startup import default_order
from strata_recipes.simulate.heat import Counts, hottest_first, skew_of

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


def load_counts(path: Path, index: PackIndex) -> Counts | None:
    """How often each expert was chosen, [layers, experts]; None where the file tells only their order."""
    g = index.geometry
    listed = _read(path, g.total_experts, "counts", 1)
    if listed is None:
        return None
    order = load_profile(path, index)[: len(listed)]
    if len(order) != len(_read_pairs(path, g.total_experts)):
        raise PackError(f"{path} has {len(listed)} counts for {len(_read_pairs(path, g.total_experts))} pairs: it is damaged")
    counts = np.zeros((g.num_layers, g.num_experts), np.int64)
    for pair, (number,) in zip(order, listed, strict=True):
        counts[pair] = number
    return counts


def with_profile(index: PackIndex, path: Path, order: Order) -> PackIndex:
    """The index with what this profile tells: its id and, where it has counts, the router's skew."""
    counts = load_counts(path, index)
    return dataclasses.replace(index, profile_id=order_id(order), skew=None if counts is None else skew_of(counts, index.geometry.top_k))


def order_id(order: Order) -> str:
    """xxh3-64 hex over the whole order: what a plan records of it."""
    return xxhash.xxh3_64_hexdigest(np.array(order, "<i4").tobytes())


def save_profile(path: Path, order: Order) -> None:
    """Writes pairs, hottest first."""
    np.savez(path, pairs=np.array(order, np.int32).reshape(-1, 2))


def write_profile(file: BinaryIO, counts: Counts) -> None:
    """Pairs, hottest first, and their counts."""
    order = np.array(hottest_first(counts), np.int32).reshape(-1, 2)
    np.savez(file, pairs=order, counts=counts[order[:, 0], order[:, 1]].reshape(-1, 1))


def _read_pairs(path: Path, limit: int) -> Order:
    array = _read(path, limit, "pairs", 2)
    if array is None:
        raise PackError(f"{path} is no profile: it holds no array `pairs`")
    return [(int(layer), int(expert)) for layer, expert in array]


def _read(path: Path, limit: int, name: str, columns: int) -> np.ndarray | None:
    """The array of that name; None where the file has none."""
    with InputFile(path) as file:
        if file.size > 32 * limit + 4096:
            raise PackError(f"{path} has {file.size:,} bytes, a profile of {limit:,} experts has at most {32 * limit + 4096:,}")
        data = file.read(0, file.size)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if f"{name}.npy" not in archive.namelist():
                return None
            member = archive.getinfo(f"{name}.npy")
            if member.file_size > 32 * limit + 4096:
                raise ValueError(f"`{name}` of {member.file_size:,} bytes")
            return _array(archive.read(member), name, columns)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError, SyntaxError) as error:
        why = " ".join(str(error).split())[:100] or type(error).__name__
        raise PackError(f"{path} is no profile, or damaged: {why}") from None


def _array(data: bytes, name: str, columns: int) -> np.ndarray:
    """The .npy inside, its stated shape held against its bytes before an array is made."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f".npy version {version}")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if len(shape) != 2 or shape[1] != columns or dtype.kind not in "iu" or fortran:
        raise ValueError(f"`{name}` has shape {shape} and type {dtype}, [n, {columns}] whole numbers are wanted")
    body = data[stream.tell() :]
    if shape[0] * columns * dtype.itemsize != len(body):
        raise ValueError(f"`{name}` has {len(body)} bytes for shape {shape} of {dtype}")
    return np.frombuffer(body, dtype).reshape(shape)
