"""A qwen4exp GGUF as a model source: matches its tensors with those that the model needs. Copies bytes, converts nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from kernels_numba.formats import BY_GGML_TYPE
from strata_recipes.errors import PackError
from strata_recipes.pack.checksum import SourceFile, source_file, sources_key
from strata_recipes.pack.index import Geometry, PackIndex, Tensor
from strata_recipes.pack.input_file import InputFile
from strata_recipes.pack.layout import (
    EXPERT_PARTS,
    NGRAM_TABLE,
    TOKEN_EMBEDDING,
    dense_wanted,
    expert_shapes,
    layer_experts,
    ngram_wanted,
    tensor,
)
from strata_recipes.pack.sources.ggml_types import readable, type_name
from strata_recipes.pack.sources.gguf_file import GgufTensor
from strata_recipes.pack.sources.gguf_geometry import Keys, check_architecture, gguf_geometry
from strata_recipes.pack.sources.gguf_shards import read_shards, shard_paths
from strata_recipes.pack.sources.gguf_tokenizer import tokenizer_json
from strata_recipes.pack.sources.source import NgramLocation, NgramPart, chunks, eos_ids, unused_note

_LAYER = re.compile(r"blk\.(\d{1,6})\.")
_VISION_OR_MTP = re.compile(r"(v|mm|a|mtp|nextn)\.|blk\.\d+\.(nextn|mtp)\.")
_EOS_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")


class GgufSource:
    """An opened GGUF, single or split. Everything is checked when it opens; weights are read when asked for."""

    def __init__(self, name: str, path: Path) -> None:
        paths = shard_paths(path)
        self._files: list[InputFile] = []
        try:
            for one in paths:
                self._files.append(InputFile(one))
            self._read(name, paths)
        except BaseException:
            self.close()
            raise

    def _read(self, name: str, paths: list[Path]) -> None:
        model = read_shards(self._files)
        self._path = paths[0]
        check_architecture(model.metadata, self._path)
        self._tensors = {t.name: t for t in model.tensors}
        geometry = self._geometry(model.metadata)
        self.unused = self._unused(geometry.num_layers)
        self.files: tuple[SourceFile, ...] = tuple(source_file(p) for p in paths)
        eos, notes = eos_ids([model.metadata.get(key) for key in _EOS_KEYS], geometry.vocab)
        self.eos_token_ids = eos
        self.index = self._index(name, geometry, notes)
        self.ngram_location = self._ngram(self.index.ngram)
        self.tokenizer_json = tokenizer_json(model.metadata)
        template = model.metadata.get("tokenizer.chat_template")
        self.chat_template: str | None = template if isinstance(template, str) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for file in self._files:
            file.close()

    def read_expert(self, layer: int, expert: int) -> bytes:
        """One blob: gate, up and down rows of an expert, as stored."""
        at = self.index.layers[layer]
        sizes = (at.gate_bytes, at.up_bytes, at.down_bytes)
        parts = [self._tensors[_expert_name(layer, part)] for part in EXPERT_PARTS]
        return b"".join(t.file.read(t.offset + expert * size, size) for t, size in zip(parts, sizes, strict=True))

    def dense_tensors(self) -> Iterator[tuple[Tensor, Iterator[bytes]]]:
        for wanted in self.index.dense:
            found = self._tensors[wanted.name]
            yield wanted, chunks(found.file, found.offset, wanted.num_bytes)

    def ngram_chunks(self) -> Iterator[bytes]:
        return iter(())  # the table stays in the GGUF

    def _geometry(self, metadata: dict[str, Any]) -> Geometry:
        stated = Keys(metadata, self._path).count("block_count")
        mtp = [int(m[1]) for name in self._tensors if (m := re.match(r"blk\.(\d{1,6})\.nextn\.", name))]
        num_layers = min([stated, *mtp])
        if num_layers > len(self._tensors):
            raise PackError(f"{self._path} states {stated:,} layers, but holds only {len(self._tensors):,} tensors")
        rows = self._find(NGRAM_TABLE).shape[0] if metadata.get("qwen4exp.ple.layers") else 0
        return gguf_geometry(metadata, self._path, self._find(TOKEN_EMBEDDING).shape[0], rows, num_layers)

    def _unused(self, num_layers: int) -> tuple[str, ...]:
        def beyond(name: str) -> bool:
            match = _LAYER.match(name)
            return match is not None and int(match[1]) >= num_layers

        return tuple(name for name in self._tensors if _VISION_OR_MTP.match(name) or beyond(name))

    def _index(self, name: str, g: Geometry, notes: tuple[str, ...]) -> PackIndex:
        wanted, table = dense_wanted(g), ngram_wanted(g)
        names = {w.name for w in wanted} | {_expert_name(la, p) for la in range(g.num_layers) for p in EXPERT_PARTS}
        self._refuse_missing(names | ({table.name} if table else set()), g)
        self._refuse_unknown(names | ({table.name} if table else set()))
        return PackIndex(
            name=name,
            pack_id=sources_key(self.files),
            geometry=g,
            layers=layer_experts(g, [self._expert_formats(g, layer) for layer in range(g.num_layers)]),
            dense=tuple(tensor(w, self._format(w.name, w.shape)) for w in wanted),
            ngram=tensor(table, self._format(table.name, table.shape)) if table else None,
            notes=unused_note(self.unused) + notes,
        )

    def _expert_formats(self, g: Geometry, layer: int) -> tuple[str, str, str]:
        gate, up, down = (self._format(_expert_name(layer, p), (g.num_experts, *expert_shapes(g)[p])) for p in EXPERT_PARTS)
        return gate, up, down

    def _format(self, name: str, shape: tuple[int, ...]) -> str:
        """The storage format of a tensor whose shape must be the wanted one, up to axes of length 1."""
        found = self._find(name)
        if [n for n in found.shape if n != 1] != [n for n in shape if n != 1]:
            raise PackError(f"{found.file.path}: tensor {name!r} has shape {list(found.shape)}, the model's geometry wants {list(shape)}")
        if found.type not in BY_GGML_TYPE:
            raise PackError(f"{found.file.path}: tensor {name!r} is stored as {type_name(found.type)}, this build reads {readable()}")
        return BY_GGML_TYPE[found.type].name

    def _find(self, name: str) -> GgufTensor:
        if name not in self._tensors:
            raise PackError(f"{self._path} has no tensor {name!r}")
        return self._tensors[name]

    def _refuse_missing(self, names: set[str], g: Geometry) -> None:
        missing = sorted(names - set(self._tensors), key=_natural)
        if not missing:
            return
        whole = sum(all(_expert_name(la, p) in self._tensors for p in EXPERT_PARTS) for la in range(g.num_layers))
        experts = f"; routed experts are whole on {whole} of {g.num_layers} layers" if whole < g.num_layers else ""
        more = f" and {len(missing) - 1} more tensors" if len(missing) > 1 else ""
        raise PackError(f"{self._path} is complete as a file, but lacks tensor {missing[0]!r}{more} that its geometry wants{experts}")

    def _refuse_unknown(self, names: set[str]) -> None:
        unknown = sorted(set(self._tensors) - names - set(self.unused), key=_natural)
        if unknown:
            shown = ", ".join(map(repr, unknown[:3])) + (", .." if len(unknown) > 3 else "")
            raise PackError(f"{self._path} holds {len(unknown)} tensors that the model has no place for: {shown}")

    def _ngram(self, table: Tensor | None) -> NgramLocation | None:
        if table is None:
            return None
        found = self._tensors[table.name]
        part = NgramPart(self._files.index(found.file), found.offset, table.shape[0])
        return NgramLocation(table, table.num_bytes // table.shape[0], (part,))


def _expert_name(layer: int, part: str) -> str:
    return f"blk.{layer}.ffn_{part}_exps.weight"


def _natural(name: str) -> list[str]:
    """Sorts blk.2 before blk.10."""
    return [piece.zfill(8) if piece.isdigit() else piece for piece in re.split(r"(\d+)", name)]
