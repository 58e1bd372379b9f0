"""pack.json: what a pack holds, with a checksum over itself. Knows no file but by name."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from strata_recipes.errors import PackError
from strata_recipes.pack.checksum import SourceFile
from strata_recipes.pack.decode import decode, parse_json
from strata_recipes.pack.dense_file import dense_file_bytes
from strata_recipes.pack.geometry import check_geometry
from strata_recipes.pack.index import FORMAT_VERSION, Geometry, LayerExperts, PackIndex, Tensor
from strata_recipes.pack.layout import dense_wanted, layer_experts, ngram_wanted, tensor
from strata_recipes.pack.sources.source import NgramLocation

MANIFEST_FILE, EXPERTS_FILE, TOKENIZER_FILE, NGRAM_FILE = "pack.json", "experts.bin", "tokenizer.json", "ngram.bin"
MAX_MANIFEST_BYTES = 32 << 20


@dataclass(frozen=True)
class Manifest:
    """The content of pack.json. A checksum text is one layer's: 16 hex digits an expert, in expert order."""

    format_version: int
    name: str
    pack_id: str
    geometry: Geometry
    sources: tuple[SourceFile, ...]
    experts_bytes: int
    dense_bytes: int
    tokenizer_bytes: int
    layers: tuple[LayerExperts, ...]
    dense: tuple[Tensor, ...]
    ngram: NgramLocation | None
    eos_token_ids: tuple[int, ...]
    chat_template: str | None
    notes: tuple[str, ...]
    unused: tuple[str, ...]
    checksums: tuple[str, ...]

    def index(self) -> PackIndex:
        table = self.ngram.tensor if self.ngram else None
        return PackIndex(self.name, self.pack_id, self.geometry, self.layers, self.dense, table, notes=self.notes)

    def checksum_table(self) -> NDArray[np.uint64]:
        """xxh3-64 of every blob, [layers, experts]."""
        return np.array([[int(row[i : i + 16], 16) for i in range(0, len(row), 16)] for row in self.checksums], np.uint64)


def manifest_text(manifest: Manifest) -> bytes:
    """The file's content: readable JSON, the checksum over the rest first."""
    body = json.loads(json.dumps(dataclasses.asdict(manifest), allow_nan=False))
    return (json.dumps({"checksum": _checksum(body), **body}, indent=1, ensure_ascii=True) + "\n").encode()


def read_manifest(text: bytes, where: str) -> Manifest:
    """A checked manifest; PackError for a newer version, a changed byte, or sums that do not hold."""
    data = parse_json(text, where)
    version = data.get("format_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise PackError(f"{where} has format version {version}, this build reads {FORMAT_VERSION}: build the pack again with mode=pack")
    stated = data.pop("checksum", None) if isinstance(data, dict) else None
    manifest = decode(Manifest, data, where)
    if stated != _checksum(data):
        raise PackError(
            f"{where} is damaged or was edited: its checksum is not the stated {str(stated)[:40]}: build the pack again with mode=pack"
        )
    if manifest.format_version != FORMAT_VERSION:
        raise PackError(f"{where} has format version {manifest.format_version}, this build reads {FORMAT_VERSION}: build the pack again")
    _check_sums(manifest, where)
    return manifest


def _checksum(body: Any) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return xxhash.xxh3_64_hexdigest(text.encode())


def _check_sums(m: Manifest, where: str) -> None:
    """Everything that follows from the geometry must be what is stated."""
    g = check_geometry(m.geometry, where)
    if len(m.layers) != g.num_layers or len(m.checksums) != g.num_layers:
        raise PackError(
            f"{where} lists {len(m.layers)} layers and {len(m.checksums)} rows of checksums, its geometry {g.num_layers} layers"
        )
    if any(len(row) != 16 * g.num_experts or set(row) - set("0123456789abcdef") for row in m.checksums):
        raise PackError(f"{where}: a row of checksums is not {g.num_experts} times 16 hex digits")
    try:
        layers = layer_experts(g, [(at.gate, at.up, at.down) for at in m.layers])
        dense = tuple(tensor(w, t.format) for w, t in zip(dense_wanted(g), m.dense, strict=True))
        table = ngram_wanted(g)
        ngram = tensor(table, m.ngram.tensor.format) if table and m.ngram else None
    except (ValueError, KeyError) as error:
        raise PackError(f"{where}: its tensors do not fit its geometry: {error}") from None
    if layers != m.layers or dense != m.dense or ngram != (m.ngram.tensor if m.ngram else None) or bool(table) != bool(m.ngram):
        raise PackError(f"{where}: its tensors do not fit its geometry")
    if m.experts_bytes != m.index().experts_file_bytes or m.dense_bytes != dense_file_bytes(m.dense):
        raise PackError(f"{where}: its file sizes do not fit its tensors")
    _check_ngram(m, where)


def _check_ngram(m: Manifest, where: str) -> None:
    if not m.ngram:
        return
    rows = sum(part.rows for part in m.ngram.parts)
    if rows != m.geometry.ngram_rows or m.ngram.row_bytes * rows != m.ngram.tensor.num_bytes or any(p.rows < 1 for p in m.ngram.parts):
        raise PackError(f"{where}: its n-gram parts have {rows:,} rows, the table {m.geometry.ngram_rows:,}")
    for part in m.ngram.parts:
        size = m.sources[part.source].size if 0 <= part.source < len(m.sources) else m.ngram.tensor.num_bytes
        if not -1 <= part.source < len(m.sources) or part.offset < 0 or part.offset + part.rows * m.ngram.row_bytes > size:
            raise PackError(f"{where}: an n-gram part lies outside its file")
