"""Random weights of any geometry, made straight in stored form at drive speed. Reads no file.

A seeded tile of valid blocks is drawn once for each format and row length; every piece of a tensor is a stretch of it from a
block that a hash of its place picks. So no two experts are alike, and 34 GB cost what copying them costs.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from kernels_numba.formats import FORMATS
from strata_recipes.config import schema
from strata_recipes.errors import ConfigError
from strata_recipes.pack.checksum import SourceFile
from strata_recipes.pack.declared import check_stated, expert_formats, stated_geometry, stated_index
from strata_recipes.pack.index import FORMAT_VERSION, PackIndex, Tensor
from strata_recipes.pack.layout import EXPERT_PARTS, dense_wanted, expert_shapes
from strata_recipes.pack.ngram_hash import hash_multipliers, table_offsets, table_sizes_within
from strata_recipes.pack.sources.source import IN_PACK, NgramLocation, NgramPart
from strata_recipes.units import MiB

GENERATOR = 2  # goes up when the same config would give other weights
EXPERT_TILE_BYTES, DENSE_TILE_BYTES, PIECE_BYTES = 64 * MiB, 8 * MiB, 4 * MiB
# root mean square of random codes at scale 1: a block's scale is the wanted one over this
UNIT_RMS = {
    "Q8_0": 73.9, "Q4_0": 4.64, "Q2_0": 1.225, "IQ4_NL": 67.5, "IQ4_XS": 1247.0, "IQ2_XS": 55.9, "IQ2_S": 56.5, "IQ3_XXS": 142.4,
}  # fmt: skip


class SyntheticSource:
    """A model source without files; the same config gives the same bytes."""

    files: tuple[SourceFile, ...] = ()
    unused: tuple[str, ...] = ()
    tokenizer_json: str | None = None
    chat_template: str | None = None
    eos_token_ids: tuple[int, ...] = ()

    def __init__(self, model: schema.Model) -> None:
        self.index: PackIndex = synthetic_index(model)
        g = self.index.geometry
        self._seed, self._skew = model.seed or 0, float(model.skew or 0.0)
        self._exact = {w.name for w in dense_wanted(g) if w.exact}
        self._tiles: dict[tuple[str, int], Tile] = {}
        self._dense_tiles: dict[tuple[str, int], Tile] = {}
        self.ngram_location: NgramLocation | None = None
        if self.index.ngram:
            row_bytes = self.index.ngram.num_bytes // g.ngram_rows
            self.ngram_location = NgramLocation(self.index.ngram, row_bytes, (NgramPart(IN_PACK, 0, g.ngram_rows),))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._tiles.clear()
        self._dense_tiles.clear()

    def read_expert(self, layer: int, expert: int) -> bytes:
        """One blob: gate, up and down, each from its own place of the tile."""
        at, shapes = self.index.layers[layer], expert_shapes(self.index.geometry)
        names = (at.gate, at.up, at.down)
        sizes = (at.gate_bytes, at.up_bytes, at.down_bytes)
        pieces: list[memoryview] = []
        for part, name, size in zip(EXPERT_PARTS, names, sizes, strict=True):
            pieces += self._tile(name, shapes[part][1], size).pieces(size, f"blk.{layer}.ffn_{part}_exps.{expert}")
        return b"".join(pieces)

    def dense_tensors(self) -> Iterator[tuple[Tensor, Iterator[bytes]]]:
        for tensor in self.index.dense:
            if tensor.name in self._exact:
                yield tensor, iter((exact_values(tensor, self._seed, self._skew).tobytes(),))
            else:
                tile = self._dense_tile(tensor.format, tensor.shape[-1])
                yield tensor, map(bytes, tile.pieces(tensor.num_bytes, tensor.name))

    def ngram_chunks(self) -> Iterator[bytes]:
        table = self.index.ngram
        assert table is not None
        return map(bytes, self._dense_tile(table.format, table.shape[-1]).pieces(table.num_bytes, table.name))

    def _tile(self, name: str, row: int, part_bytes: int) -> Tile:
        if (name, row) not in self._tiles:
            if len(self._tiles) >= 4:  # 256 MiB of tiles at most; layers of one format follow one another
                self._tiles.pop(next(iter(self._tiles)))
            size = min(EXPERT_TILE_BYTES, part_bytes * self.index.geometry.total_experts * 3)
            self._tiles[name, row] = Tile(name, row, size, self._seed)
        return self._tiles[name, row]

    def _dense_tile(self, name: str, row: int) -> Tile:
        if (name, row) not in self._dense_tiles:
            self._dense_tiles[name, row] = Tile(name, row, DENSE_TILE_BYTES, self._seed + 1)
        return self._dense_tiles[name, row]


class Tile:
    """Random blocks whose values have a root mean square of about 1 / sqrt(row length), so that outputs keep their size."""

    def __init__(self, format_name: str, row: int, num_bytes: int, seed: int) -> None:
        form = FORMATS[format_name]
        self._block = form.block_bytes
        self._blocks = max(1, num_bytes // form.block_bytes)
        rng = np.random.default_rng([seed, form.ggml_type, row])
        data = _blocks(rng, format_name, self._blocks, 1 / np.sqrt(row))
        self._piece = max(1, PIECE_BYTES // form.block_bytes) * form.block_bytes
        repeats = -(-self._piece // data.size)
        self._data = np.concatenate([data] * (1 + repeats))[: data.size + self._piece].data

    def pieces(self, num_bytes: int, place: str) -> Iterator[memoryview]:
        """`num_bytes` in stretches of the tile; `place` names them, whatever else was drawn before."""
        for at in range(0, num_bytes, self._piece):
            start = xxhash.xxh3_64_intdigest(place.encode(), seed=at) % self._blocks * self._block
            yield self._data[start : start + min(self._piece, num_bytes - at)]


def synthetic_index(model: schema.Model) -> PackIndex:
    """What the pack of a synthetic model will hold, without drawing a weight."""
    _check_formats(model)
    g = stated_geometry(model)
    if g.ngram_layers:
        g = check_stated(g, model, hashed=False)
        try:
            sizes = table_sizes_within(g.ngram_rows, (g.ngram_size - 1) * g.ngram_heads)
        except ValueError as error:
            raise ConfigError(f"model {model.name!r}: {error}: raise model.geometry.ngram_rows") from error
        multipliers = hash_multipliers(g.vocab, g.ngram_size, model.seed or 0)
        g = dataclasses.replace(g, ngram_multipliers=multipliers, ngram_vocab_sizes=sizes, ngram_offsets=table_offsets(sizes))
    notes = (model.note,) if model.note else ()
    return stated_index(model, check_stated(g, model), synthetic_key(model), notes)


def _check_formats(model: schema.Model) -> None:
    stated = {name for run in model.experts for name in (run.gate, run.up, run.down)} | {model.dense or "F32"}
    made = {name for name, form in FORMATS.items() if form.block_values == 1} | set(UNIT_RMS)
    if (stated & set(FORMATS)) - made:
        names = ", ".join(sorted((stated & set(FORMATS)) - made))
        raise ConfigError(f"model {model.name!r}: random weights are not made in {names}: use {', '.join(sorted(made))}")


def synthetic_key(model: schema.Model) -> str:
    """xxh3-128 hex over all that fixes the weights: the pack's id."""
    geometry = dataclasses.asdict(stated_geometry(model))
    formats = expert_formats(model, geometry["num_layers"])
    fixed = ["strata synthetic", FORMAT_VERSION, GENERATOR, geometry, formats, model.dense, model.seed or 0, float(model.skew or 0.0)]
    return xxhash.xxh3_128_hexdigest(json.dumps(fixed).encode())


def exact_values(tensor: Tensor, seed: int, skew: float) -> NDArray[np.float32]:
    """Float32 values of norms, biases, convolutions and routers; a router's row norms are lognormal(skew)."""
    rng = np.random.default_rng([seed, xxhash.xxh3_64_intdigest(tensor.name.encode())])
    if "norm" in tensor.name:
        return np.ones(tensor.shape, np.float32)
    if tensor.name.endswith("ssm_a"):
        return -np.exp(rng.uniform(-2, 1, tensor.shape)).astype(np.float32)
    values: NDArray[np.float32] = rng.standard_normal(tensor.shape, np.float32)
    if tensor.name.endswith("ffn_gate_inp.weight"):
        experts, hidden = tensor.shape
        values *= (np.exp(skew * rng.standard_normal(experts)) / np.sqrt(hidden)).astype(np.float32)[:, None]
    else:
        values *= np.float32(0.02)
    return values


def _blocks(rng: np.random.Generator, format_name: str, count: int, rms: float) -> np.ndarray:
    form = FORMATS[format_name]
    if form.block_values == 1:
        values = rng.standard_normal(count, np.float32) * np.float32(rms)
        if format_name == "BF16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return values.astype(np.float16 if format_name == "F16" else np.float32).view(np.uint8)
    blocks = np.frombuffer(rng.bytes(count * form.block_bytes), np.uint8).reshape(count, form.block_bytes).copy()
    blocks[:, :2] = np.array([rms / UNIT_RMS[format_name]], np.float16).view(np.uint8)
    # most formats' codes have a mean, which grows from layer to layer until all tokens choose the same experts: a sign a block has none
    blocks[:, 1] |= rng.integers(0, 2, count, np.uint8) << 7
    return blocks.reshape(-1)
