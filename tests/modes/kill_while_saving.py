"""What one process does in the test of kills: saves a profile over another one, and is killed at a stated step of it.

Each step is one call or return of Python or C code inside the save; a fork of one warm process takes each.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np

from strata_recipes.pack.profile import write_profile
from strata_recipes.results.atomic import write_binary
from tests.plan.cases import small_index

INDEX = small_index(num_experts=48, top_k=4)
SHAPE = (INDEX.geometry.num_layers, INDEX.geometry.num_experts)


def counts(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1000, SHAPE)


def save(path: Path, seed: int) -> None:
    write_binary(path, lambda file: write_profile(file, counts(seed), INDEX))


def save_and_die(path: Path, seed: int, step: int) -> None:
    left = [step]

    def count(frame: object, event: str, arg: object) -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    save(path, seed)
    sys.setprofile(None)
    os._exit(0)


def main(path: Path, stride: int) -> None:
    """Prints, for every `stride`th step: the step, whether the child was killed, and the seed of the profile that was left."""
    save(path, 1)  # imports what is imported late
    whole = {}
    for seed in (1, 2):
        save(path, seed)
        whole[path.read_bytes()] = seed
    step, killed = 1, True
    while killed:
        save(path, 1)
        child = os.fork()
        if not child:
            save_and_die(path, 2, step)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        print(step, int(killed), whole.get(path.read_bytes(), 0))
        step += stride


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
