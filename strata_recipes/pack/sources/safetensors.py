"""A Hugging Face qwen4_exp folder as a model source: bytes in their own type, rearranged to the pack's conventions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from strata_recipes.errors import PackError
from strata_recipes.pack.checksum import SourceFile, source_file, sources_key
from strata_recipes.pack.index import Geometry, PackIndex, Tensor
from strata_recipes.pack.input_file import InputFile
from strata_recipes.pack.layout import EXPERT_PARTS, Wanted, dense_wanted, layer_experts, ngram_wanted, tensor
from strata_recipes.pack.sources.hf_experts import ExpertMap, check_tensor
from strata_recipes.pack.sources.hf_geometry import check_model_type, hf_geometry
from strata_recipes.pack.sources.hf_shards import read_json, read_weights, weight_paths
from strata_recipes.pack.sources.hf_tensors import Array, Conversion, conversion
from strata_recipes.pack.sources.hf_words import WORD_FILES, chat_template, stated_eos, tokenizer_text
from strata_recipes.pack.sources.safetensors_file import StoredTensor
from strata_recipes.pack.sources.source import NgramLocation, NgramPart, chunks, eos_ids, unused_note

_VISION_OR_MTP = re.compile(r"(model\.)?(visual|vision_tower|mtp|nextn)\.")
_LAYER = re.compile(r"model\.layers\.(\d{1,9})\.")
_NGRAM = re.compile(r"model\.layers\.(\d{1,9})\.ple\.ple_embedding\.ngram_embedding\.(?:shard_(\d{1,6})\.)?weight\Z")
_BUFFERS = ("layer_multipliers", "ngram_heads_offsets", "ngram_heads_vocab_sizes")
_MAX_BUFFER_VALUES = 4096


def hf_paths(folder: Path) -> list[Path]:
    """All files that fix what a pack of this folder holds: shards first, then config and words."""
    weights = weight_paths(folder)
    return weights + [folder / "config.json"] + [folder / name for name in WORD_FILES if (folder / name).exists()]


class HfSource:
    """An opened folder. Everything is checked when it opens; weights are read when asked for."""

    def __init__(self, name: str, folder: Path) -> None:
        paths, self._folder = weight_paths(folder), folder
        config = read_json(folder / "config.json")
        check_model_type(config, folder / "config.json")
        self._files: list[InputFile] = []
        try:
            for path in paths:
                self._files.append(InputFile(path))
            self._read(name, config)
        except BaseException:
            self.close()
            raise

    def _read(self, name: str, config: dict[str, Any]) -> None:
        self._tensors = {_plain(n): t for n, t in read_weights(self._folder, self._files).items()}
        if config.get("tie_word_embeddings") and "lm_head.weight" not in self._tensors:
            self._tensors["lm_head.weight"] = self._tensors.get("model.embed_tokens.weight") or self._lacks("model.embed_tokens.weight")
        table = self._ngram_shards()
        rows = sum(t.shape[0] for t in table if len(t.shape) == 2)
        g = hf_geometry(config, self._folder / "config.json", rows, self._hash_buffers())
        self.unused = self._unused(g.num_layers)
        self._experts = ExpertMap(self._tensors, g, self._folder)
        self._conversions = {w.name: conversion(w, g) for w in dense_wanted(g)}
        self._refuse_unknown({c.parameter for c in self._conversions.values()} | self._experts.names)
        self.files: tuple[SourceFile, ...] = tuple(source_file(p) for p in hf_paths(self._folder))
        self.eos_token_ids, notes = eos_ids(stated_eos(self._folder, config), g.vocab)
        self.index = self._index(name, g, table, unused_note(self.unused) + notes)
        self.ngram_location = self._ngram(self.index.ngram, table)
        self.tokenizer_json = tokenizer_text(self._folder)
        self.chat_template = chat_template(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for file in self._files:
            file.close()

    def read_expert(self, layer: int, expert: int) -> bytes:
        """One blob: gate, up and down rows of an expert, as stored."""
        spans = [self._experts.span(layer, expert, part) for part in EXPERT_PARTS]
        return b"".join(s.tensor.file.read(s.tensor.offset + s.offset, s.num_bytes) for s in spans)

    def dense_tensors(self) -> Iterator[tuple[Tensor, Iterator[bytes]]]:
        g = self.index.geometry
        for wanted in self.index.dense:
            how = self._conversions[wanted.name]
            found = self._tensors[how.parameter]
            if how.change is None and found.dtype == wanted.format:
                yield wanted, chunks(found.file, found.offset, found.num_bytes)
            else:
                yield wanted, iter((_converted(found, wanted, how, g),))

    def ngram_chunks(self) -> Iterator[bytes]:
        return iter(())  # the table stays in its shards

    def _index(self, name: str, g: Geometry, table: list[StoredTensor], notes: tuple[str, ...]) -> PackIndex:
        wanted_table = ngram_wanted(g)
        return PackIndex(
            name=name,
            pack_id=sources_key(self.files),
            geometry=g,
            layers=layer_experts(g, self._experts.formats),
            dense=tuple(tensor(w, self._format(w)) for w in dense_wanted(g)),
            ngram=tensor(wanted_table, self._table_format(table, wanted_table)) if wanted_table else None,
            notes=notes,
        )

    def _format(self, wanted: Wanted) -> str:
        how = self._conversions[wanted.name]
        stored = check_tensor(self._tensors.get(how.parameter) or self._lacks(how.parameter), how.shape)
        return "F32" if wanted.exact else stored

    def _table_format(self, table: list[StoredTensor], wanted: Wanted) -> str:
        if not table:
            self._lacks("ple.ple_embedding.ngram_embedding.shard_0.weight")
        formats = {check_tensor(t, (t.shape[0], wanted.shape[1])) for t in table}
        if len(formats) > 1:
            raise PackError(f"{self._folder}: the n-gram table is stored in {' and '.join(sorted(formats))}, one format is wanted")
        return formats.pop()

    def _ngram_shards(self) -> list[StoredTensor]:
        """The table's parts in index order."""
        found = {int(m[2] or 0): t for name, t in self._tensors.items() if (m := _NGRAM.match(name))}
        gaps = sorted(set(range(len(found))) - set(found))
        if gaps:
            raise PackError(
                f"{self._folder} holds {len(found)} parts of the n-gram table, up to number {max(found)}, but not number {gaps[0]}"
            )
        return [found[i] for i in range(len(found))]

    def _ngram(self, table: Tensor | None, parts: list[StoredTensor]) -> NgramLocation | None:
        if table is None:
            return None
        places = tuple(NgramPart(self._files.index(t.file), t.offset, t.shape[0]) for t in parts)
        return NgramLocation(table, table.num_bytes // table.shape[0], places)

    def _hash_buffers(self) -> dict[str, tuple[int, ...]]:
        found = {}
        for name, t in self._tensors.items():
            short = name.rsplit(".", 1)[-1]
            if ".ple_embedding." in name and short in _BUFFERS:
                if t.dtype != "I64" or len(t.shape) != 1 or not 0 < t.shape[0] <= _MAX_BUFFER_VALUES:
                    raise PackError(f"{t.file.path}: tensor {name!r} is {t.dtype} of shape {list(t.shape)}, a short list of I64 is wanted")
                found[short] = tuple(np.frombuffer(t.file.read(t.offset, t.num_bytes), "<i8").tolist())
        return found

    def _unused(self, num_layers: int) -> tuple[str, ...]:
        def beyond(name: str) -> bool:
            match = _LAYER.match(name)
            return match is not None and int(match[1]) >= num_layers

        return tuple(name for name in self._tensors if _VISION_OR_MTP.match(name) or beyond(name))

    def _refuse_unknown(self, known: set[str]) -> None:
        hashes = {n for n in self._tensors if _NGRAM.match(n) or (".ple_embedding." in n and n.rsplit(".", 1)[-1] in _BUFFERS)}
        unknown = sorted(set(self._tensors) - known - set(self.unused) - hashes)
        if unknown:
            shown = ", ".join(map(repr, unknown[:3])) + (", .." if len(unknown) > 3 else "")
            raise PackError(f"{self._folder} holds {len(unknown)} tensors that the model has no place for: {shown}")

    def _lacks(self, name: str) -> StoredTensor:
        raise PackError(f"{self._folder} is complete as files, but has no tensor {name!r}")


def _plain(name: str) -> str:
    """Names of a vision model's text part, as a text model has them."""
    return "model." + name.removeprefix("model.language_model.") if name.startswith("model.language_model.") else name


def _converted(found: StoredTensor, wanted: Tensor, how: Conversion, g: Geometry) -> bytes:
    data = np.frombuffer(found.file.read(found.offset, found.num_bytes), "<u2" if found.dtype != "F32" else "<u4")
    values: Array = _floats(data, found.dtype) if wanted.format != found.dtype or wanted.format == "F32" else data
    shaped = values.reshape(how.shape)
    return bytes((shaped if how.change is None else how.change(shaped, g)).tobytes())


def _floats(data: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "BF16":
        return (data.astype(np.uint32) << 16).view(np.float32)
    return data.view(np.float16).astype(np.float32) if dtype == "F16" else data.view(np.float32)
