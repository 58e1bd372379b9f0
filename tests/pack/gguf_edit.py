"""Takes a GGUF apart and puts it together again, changed: written for tests, apart from the reader that they check."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

DATA = Path(__file__).parents[1] / "data"
TINY, MIXED = DATA / "tiny-q2_0.gguf", DATA / "tiny-mixed.gguf"
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_BLOCKS = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    8: (32, 34),
    42: (64, 18),
    17: (256, 74),
    18: (256, 98),
    20: (32, 18),
    22: (256, 82),
    23: (256, 136),
}


@dataclass
class Part:
    name: str
    dims: list[int]  # ggml order: the row first
    type: int
    data: bytes


@dataclass
class Gguf:
    keys: dict[str, bytes] = field(default_factory=dict)  # type word and value
    tensors: list[Part] = field(default_factory=list)

    def tensor(self, name: str) -> Part:
        return next(t for t in self.tensors if t.name == name)

    def set_u32(self, key: str, value: int) -> None:
        self.keys[key] = struct.pack("<II", 4, value)

    def set_u16(self, key: str, value: int) -> None:
        self.keys[key] = struct.pack("<IH", 2, value)

    def set_text(self, key: str, value: str) -> None:
        self.keys[key] = struct.pack("<I", 8) + _text(value)

    def set_i32s(self, key: str, values: list[int]) -> None:
        self.keys[key] = struct.pack("<IIQ", 9, 5, len(values)) + struct.pack(f"<{len(values)}i", *values)

    def header(self, version: int = 3, gap: int = 0) -> bytes:
        """Everything before the data; `gap` moves the last tensor so far on."""
        table, at = [], 0
        for number, t in enumerate(self.tensors):
            at += gap if number == len(self.tensors) - 1 else 0
            dims = b"".join(struct.pack("<Q", d) for d in t.dims)
            table.append(_text(t.name) + struct.pack("<I", len(t.dims)) + dims + struct.pack("<IQ", t.type, at))
            at += -(-len(t.data) // 32) * 32
        keys = [_text(k) + v for k, v in self.keys.items()]
        head = b"GGUF" + struct.pack("<IQQ", version, len(self.tensors), len(keys)) + b"".join(keys + table)
        return head + b"\0" * (-len(head) % 32)

    def write(self, path: Path) -> Path:
        with open(path, "wb") as file:
            file.write(self.header())
            for t in self.tensors:
                file.write(t.data + b"\0" * (-len(t.data) % 32))
        return path


def read(path: Path) -> Gguf:
    data = path.read_bytes()
    num_tensors, num_keys = struct.unpack_from("<QQ", data, 8)
    at, out, places = 24, Gguf(), []
    for _ in range(num_keys):
        key, at = _take_text(data, at)
        end = _value_end(data, at)
        out.keys[key], at = data[at:end], end
    for _ in range(num_tensors):
        name, at = _take_text(data, at)
        num_dims = struct.unpack_from("<I", data, at)[0]
        dims = list(struct.unpack_from(f"<{num_dims}Q", data, at + 4))
        kind, offset = struct.unpack_from("<IQ", data, at + 4 + 8 * num_dims)
        at += 16 + 8 * num_dims
        places.append((name, dims, kind, offset))
    base = -(-at // 32) * 32
    for name, dims, kind, offset in places:
        values, size = _BLOCKS[kind]
        num_bytes = int(np.prod(dims)) // values * size
        out.tensors.append(Part(name, dims, kind, data[base + offset : base + offset + num_bytes]))
    return out


def split(model: Gguf, folder: Path, cuts: list[int]) -> list[Path]:
    """The model in shards, cut before the tensors numbered in `cuts`."""
    edges, paths = [0, *cuts, len(model.tensors)], []
    for number in range(len(edges) - 1):
        shard = Gguf(dict(model.keys) if number == 0 else {}, model.tensors[edges[number] : edges[number + 1]])
        shard.set_u16("split.no", number)
        shard.set_u16("split.count", len(edges) - 1)
        shard.keys["split.tensors.count"] = struct.pack("<Ii", 5, len(model.tensors))
        paths.append(shard.write(folder / f"m-{number + 1:05d}-of-{len(edges) - 1:05d}.gguf"))
    return paths


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _take_text(data: bytes, at: int) -> tuple[str, int]:
    size = struct.unpack_from("<Q", data, at)[0]
    return data[at + 8 : at + 8 + size].decode(), at + 8 + size


def _value_end(data: bytes, at: int) -> int:
    kind, at = struct.unpack_from("<I", data, at)[0], at + 4
    if kind == 8:
        return _take_text(data, at)[1]
    if kind != 9:
        return at + _SIZES[kind]
    item, count = struct.unpack_from("<IQ", data, at)
    at += 12
    for _ in range(count if item == 8 else 0):
        at = _take_text(data, at)[1]
    return at + (0 if item == 8 else count * _SIZES[item])
