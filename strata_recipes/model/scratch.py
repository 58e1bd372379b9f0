"""Float32 buffers that every expert in turn is dequantized into. One expert at a time, so one set a model."""

from __future__ import annotations

import numpy as np

from strata_recipes.pack.index import Geometry
from strata_recipes.pack.layout import EXPERT_PARTS, expert_shapes


class ExpertScratch:
    """gate and up [I, H], down [H, I]: views, in the blob's order, of the one buffer `values`."""

    def __init__(self, g: Geometry) -> None:
        shapes = [expert_shapes(g)[part] for part in EXPERT_PARTS]
        self.values = np.empty(sum(rows * columns for rows, columns in shapes), np.float32)
        ends = np.cumsum([rows * columns for rows, columns in shapes])
        parts = np.split(self.values, ends[:-1])
        self.gate, self.up, self.down = (part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
