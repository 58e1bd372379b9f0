"""profile.npz: (layer, expert) pairs, hottest first, as array `pairs` [n, 2]. Knows how to read one, not how it was measured.

`counts` [n], where it is there, says how often each pair was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def load_heat(path: Path, index: PackIndex) -> tuple[float, ...]:
    """How often a layer's experts were chosen, hottest first, the mean over its layers; empty where the profile holds no counts."""
    g = index.geometry
    counts = _read(path, "counts", g.total_experts, width=None)
    if counts is None:
        return ()
    pairs = load_profile(path, index)[: len(counts)]
    if len(counts) > g.total_experts or counts.min(initial=0) < 0 or not counts.any():
        raise PackError(
            f"{path} holds {len(counts)} counts for {g.total_experts} experts, each 0 or more and one above it: measure it again"
        )
    heat = np.zeros((g.num_layers, g.num_experts))
    for (layer, expert), count in zip(pairs, counts, strict=True):
        heat[layer, expert] = count
    return tuple(float(f"{value:.9g}") for value in np.sort(heat)[:, ::-1].mean(0))


def order_id(order: Order) -> str:
    """xxh3-64 hex over the whole order: what a plan records of it."""
    return xxhash.xxh3_64_hexdigest(np.array(order, "<i4").tobytes())


def save_profile(path: Path, order: Order, counts: Sequence[int] | None = None) -> None:
    """Writes pairs, hottest first."""
    arrays = {"pairs": np.array(order, np.int32).reshape(-1, 2)}
    if counts is not None:
        arrays["counts"] = np.array(counts, np.int64)
    np.savez(path, **arrays)  # type: ignore[arg-type]  # its stubs take the names for options


def _read_pairs(path: Path, limit: int) -> Order:
    array = _read(path, "pairs", limit, width=2)
    if array is None:
        raise PackError(f"{path} is no profile: it holds no array `pairs`")
    return [(int(layer), int(expert)) for layer, expert in array]


def _read(path: Path, name: str, limit: int, width: int | None) -> np.ndarray | None:
    """One array of the file, [n] or [n, width] whole numbers; None where it is not there."""
    with InputFile(path) as file:
        if file.size > 48 * limit + 4096:  # pairs of int64, and counts
            raise PackError(f"{path} has {file.size:,} bytes, a profile of {limit:,} experts has at most {48 * limit + 4096:,}")
        data = file.read(0, file.size)
    try:
        array = npz_member(data, name, 32 * limit + 4096)
    except KeyError:
        return None
    except ValueError as error:
        raise PackError(f"{path} is no profile, or damaged: {error}") from None
    wanted = () if width is None else (width,)
    if array.shape[1:] != wanted or array.ndim != 1 + len(wanted) or array.dtype.kind not in "iu":
        form = "[n]" if width is None else f"[n, {width}]"
        raise PackError(f"{path} is no profile: `{name}` has shape {list(array.shape)} and type {array.dtype}, {form} whole numbers are wanted")
    return array
