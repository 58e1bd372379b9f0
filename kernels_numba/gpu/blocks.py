"""Where a block's fields lie in device memory, in plain and in planar order, and loads as wide as that place allows. Knows no decoding.

A tensor is named by its base address; `count` is the tensor's number of blocks, on which the start of a plane depends.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

import math
from typing import Any

from kernels_numba.device import inline
from kernels_numba.formats import FORMATS
from kernels_numba.ptx import load16, load32, load64, load128, shift_or


class Fields:
    """A format's fields in one order. `alignment`: of the tensor's base address, in bytes (2 to 16)."""

    def __init__(self, format_name: str, planar: bool, alignment: int) -> None:
        form = FORMATS[format_name]
        self._places: dict[str, tuple[int, int, int, int]] = {}
        before = 0
        for name, size in form.planes if planar else form.fields:
            scale, start, stride = (before, 0, size) if planar else (0, before, form.block_bytes)
            self._places[name] = scale, start, stride, math.gcd(alignment, scale, start, stride)
            before += size

    def at(self, name: str) -> Any:
        """Device function (base, count, block) -> address of the block's field."""
        scale, start, stride, _ = self._places[name]

        @inline
        def address(base, count, block):  # type: ignore[no-untyped-def]
            return base + count * scale + start + block * stride

        return address

    def words(self, name: str, num_words: int, step: int = 16) -> Any:
        """Device function (address) -> tuple of words; addresses are steps of `step` bytes from the field's start."""
        return words(num_words, math.gcd(self._places[name][3], step))


def words(num_words: int, alignment: int) -> Any:
    """Device function (address) -> tuple of 1, 2, 4 or 8 words, with the widest loads that the alignment allows."""
    if num_words * 4 <= min(alignment, 16):
        return _single(num_words)
    if num_words == 1:
        return _from_halves

    half, step = words(num_words // 2, alignment), num_words * 2

    @inline
    def two(at):  # type: ignore[no-untyped-def]
        return half(at) + half(at + step)

    return two


def _single(num_words: int) -> Any:
    if num_words > 1:
        return {2: load64, 4: load128}[num_words]

    @inline
    def one(at):  # type: ignore[no-untyped-def]
        return (load32(at),)

    return one


@inline
def _from_halves(at):  # type: ignore[no-untyped-def]
    return (shift_or(load16(at), load16(at + 2), 16),)
