"""Quant block layouts as data: the one place where a format is added. Imports nothing, so any floor may read it.

Sources: ggml's block structs (types 0-41) and the Q2_0 description in the public converter (type 42).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """One storage format of weights: `block_values` values lie in `block_bytes` bytes."""

    name: str
    ggml_type: int
    block_values: int
    block_bytes: int
    fields: tuple[tuple[str, int], ...]  # a block's parts in stored order, with their bytes

    def row_bytes(self, num_values: int) -> int:
        """Bytes of a row of `num_values`; ValueError where the block does not divide it."""
        if num_values % self.block_values:
            raise ValueError(f"{self.name} holds {self.block_values} values a block, which does not divide a row of {num_values}")
        return num_values // self.block_values * self.block_bytes

    @property
    def planes(self) -> tuple[tuple[str, int], ...]:
        """The fields in planar order: all blocks' largest field first, so that every plane starts aligned (see repack.py)."""
        return tuple(sorted(self.fields, key=lambda field: -field[1]))


_ALL = (
    Format("F32", 0, 1, 4, (("value", 4),)),
    Format("F16", 1, 1, 2, (("value", 2),)),
    Format("BF16", 30, 1, 2, (("value", 2),)),
    Format("Q8_0", 8, 32, 34, (("d", 2), ("qs", 32))),
    Format("Q4_0", 2, 32, 18, (("d", 2), ("qs", 16))),
    Format("Q2_0", 42, 64, 18, (("d", 2), ("qs", 16))),
    Format("IQ4_NL", 20, 32, 18, (("d", 2), ("qs", 16))),
    Format("IQ4_XS", 23, 256, 136, (("d", 2), ("scales_h", 2), ("scales_l", 4), ("qs", 128))),
    Format("IQ3_XXS", 18, 256, 98, (("d", 2), ("qs", 64), ("signs", 32))),
    Format("IQ3_S", 21, 256, 110, (("d", 2), ("qs", 64), ("qh", 8), ("signs", 32), ("scales", 4))),
    Format("IQ2_XS", 17, 256, 74, (("d", 2), ("qs", 64), ("scales", 8))),
    Format("IQ2_S", 22, 256, 82, (("d", 2), ("qs", 32), ("signs", 32), ("qh", 8), ("scales", 8))),
    Format("Q4_K", 12, 256, 144, (("d", 2), ("dmin", 2), ("scales", 12), ("qs", 128))),
    Format("Q5_K", 13, 256, 176, (("d", 2), ("dmin", 2), ("scales", 12), ("qh", 32), ("qs", 128))),
    Format("Q6_K", 14, 256, 210, (("ql", 128), ("qh", 64), ("scales", 16), ("d", 2))),
)
FORMATS: dict[str, Format] = {f.name: f for f in _ALL}
BY_GGML_TYPE: dict[int, Format] = {f.ggml_type: f for f in _ALL}
