"""Which model an expert profile was learned on, as the profile states it. Knows no counts."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strata_recipes.errors import PackError
from strata_recipes.pack.decode import decode, parse_json
from strata_recipes.pack.index import PackIndex

MOST_NAME, MOST_BYTES = 200, 4096  # letters of a model's name that are kept, and what they and the rest take at most
DECLARED = "declared"  # the id of sizes without files, which may be any file's of that geometry


@dataclass(frozen=True)
class LearnedOn:
    name: str
    pack_id: str
    num_layers: int
    num_experts: int

    def __str__(self) -> str:
        return f"{self.name} ({self.num_layers} layers of {self.num_experts} experts, pack {self.pack_id})"


def model_of(index: PackIndex) -> LearnedOn:
    """What a profile of this model states."""
    return LearnedOn(index.name[:MOST_NAME], index.pack_id, index.geometry.num_layers, index.geometry.num_experts)


def to_array(model: LearnedOn) -> NDArray[np.uint8]:
    """JSON as an array of bytes, which a .npz can hold without objects."""
    return np.frombuffer(json.dumps(dataclasses.asdict(model)).encode(), np.uint8)


def from_array(array: NDArray[np.generic], where: str) -> LearnedOn:
    """PackError where the bytes state no model."""
    if array.dtype != np.uint8 or array.ndim != 1:
        raise PackError(f"{where} has shape {list(array.shape)} and type {array.dtype}, [n] bytes are wanted")
    return decode(LearnedOn, parse_json(array.tobytes(), where), where)


def refuse_another(path: Path, stated: LearnedOn, index: PackIndex) -> None:
    """PackError where a profile is another model's; sizes that are only declared are the same model's where the geometry is."""
    here = model_of(index)
    shape = (stated.num_layers, stated.num_experts) == (here.num_layers, here.num_experts)
    if not shape or (here.pack_id != stated.pack_id and DECLARED not in (here.pack_id, stated.pack_id)):
        raise PackError(
            f"{path} was learned on {stated}, the model here is {here}: take a profile of this model, or count one with mode=profile"
        )
