"""Where the reference checkpoints and their oracles lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
HF = ROOT.parent / "shared" / "reference" / "tiny-hf"
ORACLES = HF.parent / "oracle"
SOURCES = {
    "tiny-q2_0": DATA / "tiny-q2_0.gguf",
    "tiny-mixed": DATA / "tiny-mixed.gguf",
    "storyteller": ROOT / "strata_recipes" / "assets" / "storyteller.gguf",
    "tiny-hf": HF,
}


def stored(name: str, part: str) -> Any:
    """The oracle of one text: `ids`, and `logits` or `tokens`."""
    folder = DATA / "oracle" if (DATA / "oracle" / f"{name}.{part}.npz").exists() else ORACLES
    return np.load(folder / f"{name}.{part}.npz")
