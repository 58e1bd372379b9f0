"""Whose turn it is on a card: never more jobs on one than asked for, whatever launcher or sweep they come from. Runs nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from strata_recipes.config.schema import Config
from strata_recipes.errors import FileError
from strata_recipes.pack.input_file import os_sentence
from strata_recipes.pack.lock import try_lock

WITHOUT_CARD = ("plan", "pack", "fit", "simulate")  # modes that compute nothing on one
_PAUSE_S = 0.2


def wants_card(config: Config) -> bool:
    """Whether a job's work is a card's, where there is one."""
    return config.mode.name.value not in WITHOUT_CARD and config.hardware.gpu.vram != 0


@contextmanager
def turn(uuids: list[str], jobs_per_gpu: int, folder: Path) -> Iterator[dict[str, str]]:
    """Waits for a free place on one of the cards, and gives what the job's environment must hold. `folder`: where the locks lie."""
    if not uuids:
        yield {}
        return
    places = [(uuid, folder / f"gpu-{uuid}-{place}.lock") for place in range(jobs_per_gpu) for uuid in uuids]
    with ExitStack() as held:
        while (uuid := _take(places, held)) is None:
            time.sleep(_PAUSE_S)
        yield {"CUDA_VISIBLE_DEVICES": uuid}


def _take(places: list[tuple[str, Path]], held: ExitStack) -> str | None:
    """The card of the first free place, the emptiest card first; None where all are taken."""
    for uuid, path in places:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab")
            if try_lock(file):
                held.enter_context(file)
                return uuid
            file.close()
        except OSError as error:
            raise FileError(os_sentence(path, "cannot be locked", error)) from error
    return None
