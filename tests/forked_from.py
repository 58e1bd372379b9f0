"""What the process did that the forks of forks.py come from: it imported the engine, and compiled what experts of float32 need."""

from __future__ import annotations

import numpy as np

import strata_recipes.engine.session
import strata_recipes.modes.run  # noqa: F401
from kernels_numba.cpu.expert_mlp import expert_mlp, scatter_add

# Neither starts a thread, which a fork would not have.
_WIDE, _HIGH = np.ones((8, 16), np.float32), np.ones((16, 8), np.float32)
scatter_add(np.ones((1, 16), np.float32), np.zeros(1, np.int64), np.ones(1, np.float32), expert_mlp(_WIDE[:1], _WIDE, _WIDE, _HIGH))
