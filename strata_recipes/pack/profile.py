"""profile.npz: (layer, expert) pairs, hottest first, as array `pairs` [n, 2]. Knows how to read one, not how it was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xxhash

from strata_recipes.errors import PackError
from strata_recipes.npy import npz_member
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
        array = npz_member(data, "pairs", 32 * limit + 4096)
    except KeyError:
        raise PackError(f"{path} is no profile: it holds no array `pairs`") from None
    except ValueError as error:
        raise PackError(f"{path} is no profile, or damaged: {error}") from None
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise PackError(
            f"{path} is no profile: `pairs` has shape {list(array.shape)} and type {array.dtype}, [n, 2] whole numbers are wanted"
        )
    return [(int(layer), int(expert)) for layer, expert in array]
