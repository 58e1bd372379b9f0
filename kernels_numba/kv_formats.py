"""How a row of keys or values is stored in its cell, as data. Imports nothing, so any floor may read it."""

from __future__ import annotations

from dataclasses import dataclass

MOST_ROTATED = 256  # values that one Hadamard matrix mixes, at most


@dataclass(frozen=True)
class KvFormat:
    """A cell holds a row's codes, then the float16 scales of its groups. Float formats have no groups."""

    name: str
    bits: int  # of a value
    group: int = 0  # values that share a scale
    rotates: bool = False  # rows are mixed by a Hadamard matrix before they are rounded

    def groups(self, dim: int) -> int:
        """Scales of a row of `dim` values; the last group may be a part of one."""
        return -(-dim // self.group) if self.group else 0

    def code_bytes(self, dim: int) -> int:
        """Bytes before the scales. A part of a group of 4-bit codes is filled up with zeros."""
        return self.groups(dim) * self.group // 2 if self.bits == 4 else dim * self.bits // 8

    def cell_bytes(self, dim: int) -> int:
        return self.code_bytes(dim) + 2 * self.groups(dim)

    def rotation(self, dim: int) -> int:
        """Values that are mixed together: the largest power of two that divides the row, at most 256; 1 where nothing is."""
        return min(dim & -dim, MOST_ROTATED) if self.rotates else 1


KV_OF_TYPE = {"float32": "fp32", "float16": "fp16", "int8": "int8", "uint8": "q4_0"}  # the type of an array of cells names its format
KV_FORMATS = {
    form.name: form
    for form in (KvFormat("fp32", 32), KvFormat("fp16", 16), KvFormat("int8", 8, group=64), KvFormat("q4_0", 4, group=32, rotates=True))
}
