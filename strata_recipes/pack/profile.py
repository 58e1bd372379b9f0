"""profile.npz: (layer, expert) pairs, hottest first, as array `pairs` [n, 2], how often each was chosen, as `counts` [n], and `model`.

A file without counts orders experts as well; one that names no model is taken where its pairs fit. Knows how to read and write one,
not how it was measured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import xxhash

from strata_recipes.errors import PackError
from strata_recipes.npy import npz_member
from strata_recipes.pack.index import PackIndex
from strata_recipes.pack.input_file import InputFile
from strata_recipes.pack.learned_on import MOST_BYTES, LearnedOn, from_array, model_of, refuse_another, to_array
from strata_recipes.schedule.startup import default_order
from strata_recipes.simulate.heat import Counts, hottest_first

PROFILE_FILE = "profile.npz"
Order = list[tuple[int, int]]


def load_profile(path: Path, index: PackIndex) -> Order:
    """All pairs of the model: the file's, hottest first, then those that it does not list in the default order.

    PackError for a file that is no profile, or another model's.
    """
    if (stated := learned_on(path, index)) is not None:
        refuse_another(path, stated, index)
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


def learned_on(path: Path, index: PackIndex) -> LearnedOn | None:
    """The model that the file names; None where it names none."""
    array = _member(path, "model", index.geometry.total_experts, MOST_BYTES)
    return None if array is None else from_array(array, f"{path}: `model`")


def load_counts(path: Path, index: PackIndex) -> Counts | None:
    """How often each expert was chosen, [layers, experts]; None where the file tells only their order."""
    g = index.geometry
    listed = _read(path, "counts", g.total_experts, width=None)
    if listed is None:
        return None
    pairs = _read_pairs(path, g.total_experts)
    if len(listed) != len(pairs) or listed.min(initial=0) < 0 or not listed.any():
        raise PackError(f"{path} holds {len(listed)} counts for {len(pairs)} experts, each 0 or more and one above it: measure it again")
    counts = np.zeros((g.num_layers, g.num_experts), np.int64)
    for pair, number in zip(load_profile(path, index), listed, strict=False):
        counts[pair] = number
    return counts


def load_heat(path: Path, index: PackIndex) -> tuple[float, ...]:
    """How often a layer's experts were chosen, hottest first, the mean over its layers; empty where the profile holds no counts."""
    counts = load_counts(path, index)
    return () if counts is None else tuple(float(f"{value:.9g}") for value in np.sort(counts)[:, ::-1].mean(0))


def with_profile(index: PackIndex, path: Path, order: Order) -> PackIndex:
    """The index with what this profile tells: its id and, where it has counts, how they fall off."""
    return dataclasses.replace(index, profile_id=order_id(order), heat=load_heat(path, index))


def order_id(order: Order) -> str:
    """xxh3-64 hex over the whole order: what a plan records of it."""
    return xxhash.xxh3_64_hexdigest(np.array(order, "<i4").tobytes())


def save_profile(path: Path, order: Order, counts: Sequence[int] | None = None) -> None:
    """Writes pairs, hottest first."""
    arrays = {"pairs": np.array(order, np.int32).reshape(-1, 2)}
    if counts is not None:
        arrays["counts"] = np.array(counts, np.int64)
    np.savez(path, **arrays)  # type: ignore[arg-type]  # its stubs take the names for options


def write_profile(file: BinaryIO, counts: Counts, index: PackIndex, order: Order | None = None) -> None:
    """Pairs, hottest first, their counts, and the model; of two alike the one that comes first in `order` (None: the default)."""
    pairs = hottest_first(counts) if order is None else sorted(order, key=lambda pair: -counts[pair])
    array = np.array(pairs, np.int32).reshape(-1, 2)
    np.savez(file, pairs=array, counts=counts[array[:, 0], array[:, 1]], model=to_array(model_of(index)))


def _read_pairs(path: Path, limit: int) -> Order:
    array = _read(path, "pairs", limit, width=2)
    if array is None:
        raise PackError(f"{path} is no profile: it holds no array `pairs`")
    return [(int(layer), int(expert)) for layer, expert in array]


def _read(path: Path, name: str, limit: int, width: int | None) -> np.ndarray | None:
    """One array of the file, [n] or [n, width] whole numbers; None where it is not there."""
    array = _member(path, name, limit, 32 * limit + 4096)
    if array is None:
        return None
    wanted = () if width is None else (width,)
    if array.shape[1:] != wanted or array.ndim != 1 + len(wanted) or array.dtype.kind not in "iu":
        form = "[n]" if width is None else f"[n, {width}]"
        raise PackError(
            f"{path} is no profile: `{name}` has shape {list(array.shape)} and type {array.dtype}, {form} whole numbers are wanted"
        )
    return array


def _member(path: Path, name: str, limit: int, most_bytes: int) -> np.ndarray | None:
    """One array of a file that may list `limit` experts, as it stands; None where it is not there."""
    most = 48 * limit + 4096 + MOST_BYTES  # pairs of int64, counts, and the model
    with InputFile(path) as file:
        if file.size > most:
            raise PackError(f"{path} has {file.size:,} bytes, a profile of {limit:,} experts has at most {most:,}")
        data = file.read(0, file.size)
    try:
        return npz_member(data, name, most_bytes)
    except KeyError:
        return None
    except ValueError as error:
        raise PackError(f"{path} is no profile, or damaged: {error}") from None
