"""Keys or values of one layer in cells: rows are rounded as they are written and widened as they are read. Knows no attention.

K kv heads, D head dimension. The rules of rounding are kernels_numba/reference_kv.py's, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from kernels_numba.kv_formats import KV_FORMATS, KvFormat
from strata_recipes.errors import ConfigError

Take = Callable[..., Tensor]  # (shape, dtype=) -> an array
_FLOATS = {"fp32": torch.float32, "fp16": torch.float16}
_TYPES = {**_FLOATS, "int8": torch.int8, "q4_0": torch.uint8}  # the type of an array of cells, which tells kernels its format


@dataclass(frozen=True)
class HostPart:
    """RAM for cells: uint8, and where a card's kernels find it. None: where the host does."""

    bytes: Tensor
    card_address: int | None = None


Host = Callable[[int], HostPart]  # of so many bytes


def kv_format(name: str) -> KvFormat:
    """The format of that name; ConfigError where there is none."""
    if name not in KV_FORMATS:
        raise ConfigError(f"kv={name} is not one of {', '.join(KV_FORMATS)}")
    return KV_FORMATS[name]


@dataclass(frozen=True)
class Cells:
    """Cells of all tokens of a context. What a token reads does not depend on when the others were written, nor on where they lie."""

    form: KvFormat
    dim: int
    near: Tensor  # [K, tokens, D] of a float format, or [K, tokens, cell bytes]: the first tokens'
    far: Tensor | None = None  # the others', in RAM; for a card it is page-locked
    far_address: int | None = None  # where a card finds these; None: where the host does

    @property
    def num_bytes(self) -> int:
        return self.near.nbytes + (0 if self.far is None else self.far.nbytes)

    def write(self, start: int, rows: Tensor) -> None:
        """Rows [T, K, D] of tokens from `start` on."""
        if self.near.is_cuda and self.dim % 8 == 0 and (self.form.group or self.far is not None):
            from kernels_numba.gpu.kv_store import kv_store  # numba-cuda's import is for those who have a card

            kv_store(rows.contiguous(), self, start)
            return
        cells, resident = encode(rows.transpose(0, 1), self.form), self.near.shape[1]
        here = max(0, min(rows.shape[0], resident - start))
        self.near[:, start : start + here] = cells[:, :here]
        if self.far is not None:
            at = max(0, start - resident)
            self.far[:, at : at + rows.shape[0] - here] = cells[:, here:].to(self.far.device)

    def first(self, count: int) -> Tensor:
        """Float32 [K, count, D] of the first tokens: rotated, where the format rotates."""
        resident = self.near.shape[1]
        cells = self.near[:, :count]
        if count > resident:
            cells = torch.cat((cells, self._settled()[:, : count - resident].to(cells.device)), dim=1)
        return decode(cells, self.dim, self.form)

    def gather(self, tokens: Tensor) -> Tensor:
        """Float32 [K, n, D] of tokens [n]."""
        resident = self.near.shape[1]
        if self.far is None:
            return decode(self.near.index_select(1, tokens), self.dim, self.form)
        cells = self.near.index_select(1, tokens.clamp(max=resident - 1))
        beyond = (tokens >= resident).nonzero()[:, 0]
        others = self._settled().index_select(1, (tokens[beyond] - resident).to(self.far.device))
        cells[:, beyond] = others.to(cells.device)
        return decode(cells, self.dim, self.form)

    def _settled(self) -> Tensor:
        """`far`, once what a card still writes there has arrived."""
        assert self.far is not None, "a context with no more tokens than lie near has no others"
        if self.near.is_cuda:
            torch.cuda.synchronize(self.near.device)
        return self.far


def host_bytes(num_bytes: int) -> HostPart:
    """Memory for cells that a CPU reads."""
    return HostPart(torch.empty(num_bytes, dtype=torch.uint8))


@dataclass(frozen=True)
class Places:
    """Where the cells of each layer go: `resident` tokens of them on the device, the others in RAM that `host` gives by the byte."""

    device: torch.device | None = None
    resident: int | None = None  # None: all
    host: Host = host_bytes


def near_cells(form: KvFormat, heads: int, context: int, dim: int, places: Places) -> tuple[tuple[int, int, int], torch.dtype]:
    """Shape and type of the array of the first tokens' cells."""
    resident = context if places.resident is None else min(places.resident, context)
    return (heads, resident, form.cell_bytes(dim) if form.group else dim), _TYPES[form.name]


def empty_cells(form: KvFormat, heads: int, context: int, dim: int, places: Places, take: Take = torch.empty) -> Cells:
    """Room for a context, the first tokens' from `take`; nothing is zeroed, as cells are written before they are read."""
    shape, kind = near_cells(form, heads, context, dim, places)
    near, resident, width = take(shape, dtype=kind), *shape[1:]
    if resident == context:
        return Cells(form, dim, near)
    shape = heads, context - resident, width
    far = places.host(math.prod(shape) * kind.itemsize)
    return Cells(form, dim, near, far.bytes.view(kind).view(shape), far.card_address)


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
