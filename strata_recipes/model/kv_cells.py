"""Keys or values of one layer in cells: rows are rounded as they are written and widened as they are read. Knows no attention.

K kv heads, D head dimension. The rules of rounding are kernels_numba/reference_kv.py's, bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from kernels_numba.kv_formats import KV_FORMATS, KvFormat
from strata_recipes.errors import ConfigError

_FLOATS = {"fp32": torch.float32, "fp16": torch.float16}
_TYPES = {**_FLOATS, "int8": torch.int8, "q4_0": torch.uint8}  # the type of an array of cells, which tells kernels its format


def kv_format(name: str) -> KvFormat:
    """The format of that name; ConfigError where there is none."""
    if name not in KV_FORMATS:
        raise ConfigError(f"kv={name} is not one of {', '.join(KV_FORMATS)}")
    return KV_FORMATS[name]


@dataclass(frozen=True)
class Cells:
    """Cells of all tokens of a context. What a token reads does not depend on when the others were written."""

    form: KvFormat
    dim: int
    array: Tensor  # [K, context, D] of a float format, or [K, context, cell bytes]

    @property
    def num_bytes(self) -> int:
        return self.array.nbytes

    def write(self, start: int, rows: Tensor) -> None:
        """Rows [T, K, D] of tokens from `start` on."""
        if self.form.group and self.array.is_cuda and self.dim % 8 == 0:
            from kernels_numba.gpu.kv_store import kv_store  # numba-cuda's import is for those who have a card

            kv_store(rows.contiguous(), self.array, start)
            return
        self.array[:, start : start + rows.shape[0]] = encode(rows.transpose(0, 1), self.form)

    def first(self, count: int) -> Tensor:
        """Float32 [K, count, D] of the first tokens: rotated, where the format rotates."""
        return decode(self.array[:, :count], self.dim, self.form)

    def gather(self, tokens: Tensor) -> Tensor:
        """Float32 [K, n, D] of tokens [n]."""
        return decode(self.array.index_select(1, tokens), self.dim, self.form)


def empty_cells(form: KvFormat, heads: int, context: int, dim: int, device: torch.device | None = None) -> Cells:
    """Room for a context; nothing is zeroed, as cells are written before they are read."""
    width = form.cell_bytes(dim) if form.group else dim
    return Cells(form, dim, torch.empty(heads, context, width, dtype=_TYPES[form.name], device=device))


def rotate(x: Tensor, form: KvFormat) -> Tensor:
    """Rows [.., D] times the format's orthonormal Hadamard matrix: queries, to read rotated keys; and what was read of values, back."""
    size, step = form.rotation(x.shape[-1]), 1
    if size == 1:
        return x
    parts = x.reshape(-1, size)
    while step < size:
        low, high = parts.view(-1, size // (2 * step), 2, step).unbind(2)
        parts = torch.stack((low + high, low - high), dim=2).view(-1, size)
        step *= 2
    return (parts * size**-0.5).view(x.shape)


def encode(rows: Tensor, form: KvFormat) -> Tensor:
    """Float32 [.., D] as cells."""
    if form.name in _FLOATS:
        return rows.to(_FLOATS[form.name])
    dim = rows.shape[-1]
    groups = functional.pad(rotate(rows, form), (0, -dim % form.group)).unflatten(-1, (-1, form.group))
    codes, scales = _codes_of_8(groups) if form.bits == 8 else _codes_of_4(groups)
    return torch.cat((codes.flatten(-2)[..., : form.code_bytes(dim)], scales.view(codes.dtype)), dim=-1)


def decode(cells: Tensor, dim: int, form: KvFormat) -> Tensor:
    """Cells as float32 [.., dim]."""
    if form.name in _FLOATS:
        return cells.to(torch.float32)
    codes, scales = cells.split((form.code_bytes(dim), 2 * form.groups(dim)), dim=-1)
    if form.bits == 4:
        codes = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2)
    values = codes.to(torch.float32) - (8 if form.bits == 4 else 0)
    values = functional.pad(values, (0, -values.shape[-1] % form.group)).unflatten(-1, (-1, form.group))
    widened = scales.contiguous().view(torch.float16).to(torch.float32)
    return (values * widened[..., None]).flatten(-2)[..., :dim]


def _codes_of_8(groups: Tensor) -> tuple[Tensor, Tensor]:
    units, scales = _divided(groups, groups.abs().amax(-1) / torch.tensor(127.0, device=groups.device))
    return units.clamp(-127, 127).to(torch.int8), scales


def _codes_of_4(groups: Tensor) -> tuple[Tensor, Tensor]:
    largest = groups.abs().amax(-1)
    negative = (groups == -largest[..., None]).any(-1)
    units, scales = _divided(groups, torch.where(negative, -largest, largest) * -0.125)
    nibbles = (units.clamp(-8, 7) + 8).to(torch.uint8)
    return nibbles[..., ::2] | nibbles[..., 1::2] << 4, scales


def _divided(groups: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Values in units of their group's stored scale, to whole ones; and the scales."""
    stored = scales.to(torch.float16)
    widened = stored.to(torch.float32)
    usable = widened.isfinite() & (widened != 0)
    units = torch.round(groups / torch.where(usable, widened, math.inf)[..., None])
    return torch.where(usable[..., None], units, 0.0), stored
