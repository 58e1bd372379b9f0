"""Where each routed expert's parts lie in a checkpoint: fused for all experts of a layer, or one parameter an expert. Reads no weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from strata_recipes.errors import PackError
from strata_recipes.pack.index import Geometry
from strata_recipes.pack.layout import EXPERT_PARTS, expert_shapes
from strata_recipes.pack.sources.safetensors_file import StoredTensor

FLOATS = ("BF16", "F16", "F32")


@dataclass(frozen=True)
class Span:
    """Bytes of one part of one expert, and the format that they are in."""

    tensor: StoredTensor
    offset: int  # inside the tensor
    num_bytes: int


class ExpertMap:
    """All parts of all experts, counted against the config when it is made."""

    def __init__(self, tensors: Mapping[str, StoredTensor], g: Geometry, folder: Path) -> None:
        self._tensors, self._g, self._folder = tensors, g, folder
        self.names: set[str] = set()
        self.formats = [self._layer_formats(layer) for layer in range(g.num_layers)]

    def span(self, layer: int, expert: int, part: str) -> Span:
        """Where a part lies; the map was checked, so it is there."""
        rows, columns = expert_shapes(self._g)[part]
        fused = self._tensors.get(_fused(layer, part))
        if fused is None:
            tensor = self._tensors[_single(layer, expert, part)]
            return Span(tensor, 0, tensor.num_bytes)
        size = fused.num_bytes // (self._g.num_experts * (1 if part == "down" else 2))
        assert size == rows * columns * (fused.num_bytes // _values(fused.shape))
        if part == "down":
            return Span(fused, expert * size, size)
        return Span(fused, (2 * expert + (part == "up")) * size, size)  # gate rows, then up rows

    def _layer_formats(self, layer: int) -> tuple[str, str, str]:
        gate, up, down = (self._part_format(layer, part) for part in EXPERT_PARTS)
        return gate, up, down

    def _part_format(self, layer: int, part: str) -> str:
        name, (rows, columns) = _fused(layer, part), expert_shapes(self._g)[part]
        if name in self._tensors:
            self.names.add(name)
            return self._checked(name, (self._g.num_experts, rows if part == "down" else 2 * rows, columns))
        self._refuse_missing(layer, part)
        names = [_single(layer, expert, part) for expert in range(self._g.num_experts)]
        self.names.update(names)
        formats = {self._checked(name, (rows, columns)) for name in names}
        if len(formats) > 1:
            raise PackError(
                f"{self._folder}: layer {layer} stores {part} of its experts in {' and '.join(sorted(formats))}, "
                "one format a layer is wanted"
            )
        return formats.pop()

    def _refuse_missing(self, layer: int, part: str) -> None:
        """Names the first expert that lacks a part, and how many of the layer are whole."""
        experts = self._g.num_experts
        missing = next((e for e in range(experts) if _single(layer, e, part) not in self._tensors), None)
        if missing is None:
            return
        # the bound keeps a damaged count from looping for ever
        whole = sum(all(_single(layer, e, p) in self._tensors for p in EXPERT_PARTS) for e in range(min(experts, len(self._tensors))))
        raise PackError(
            f"{self._folder} is complete as files, but lacks {part} of expert {missing} on layer {layer}: "
            f"{whole} of {experts} experts are whole there, named like {_single(layer, missing, part)!r}"
        )

    def _checked(self, name: str, shape: tuple[int, ...]) -> str:
        return check_tensor(self._tensors[name], shape)


def check_tensor(found: StoredTensor, shape: tuple[int, ...]) -> str:
    """The format of a tensor of the wanted shape, up to axes of length 1; PackError for another one."""
    if [n for n in found.shape if n != 1] != [n for n in shape if n != 1]:
        raise PackError(f"{found.file.path}: tensor {found.name!r} has shape {list(found.shape)}, the model's geometry wants {list(shape)}")
    if found.dtype not in FLOATS:
        raise PackError(f"{found.file.path}: tensor {found.name!r} is stored as {found.dtype}, this build reads {', '.join(FLOATS)}")
    return found.dtype


def _fused(layer: int, part: str) -> str:
    return f"model.layers.{layer}.mlp.experts.{'down_proj' if part == 'down' else 'gate_up_proj'}"


def _single(layer: int, expert: int, part: str) -> str:
    return f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight"


def _values(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count
