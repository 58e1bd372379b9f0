"""experts.profile_save: what a reply's tokens chose becomes an expert profile, also where the reply ended early. Counts nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strata_recipes.config.schema import Config
from strata_recipes.engine.session import Session
from strata_recipes.errors import FileError
from strata_recipes.modes.prepare import Prepared
from strata_recipes.pack.profile import PROFILE_FILE, load_counts, write_profile
from strata_recipes.pack.reader import Pack
from strata_recipes.results import atomic

REMEDY = "set experts.profile_save to a file in a folder with room"
Say = Callable[[str], None]


def check_place(config: Config) -> None:
    """FileError where the profile could not be written, before hours of work."""
    path = _path(config)
    if path is not None:
        atomic.check_place(path, f"experts.profile_save={config.experts.profile_save}")


@contextmanager
def learning(prepared: Prepared, pack: Pack, session: Session, log: Say, note: Say) -> Iterator[None]:
    """The block writes a reply; when it ends, early or not, the file holds what was chosen so far, and what the run began with."""
    path = _path(prepared.config)
    if path is None:
        yield
        return
    earlier = _earlier(prepared.config, pack)
    try:
        yield
    except BaseException:
        try:
            _save(path, earlier, prepared, pack, session, log)
        except FileError as error:  # must not hide why the reply ended
            note(str(error))
        raise
    _save(path, earlier, prepared, pack, session, log)


def _save(path: Path, earlier: NDArray[np.int64], prepared: Prepared, pack: Pack, session: Session, log: Say) -> None:
    """Written whole or not at all."""
    learned, stated = session.learned(), prepared.config.experts.profile_save
    assert learned is not None, "the plan counts where experts.profile_save is stated"
    if not learned.any():
        log(f"experts.profile_save={stated} is left as it is: no token after the first was written")
        return
    atomic.write_binary(path, lambda file: write_profile(file, earlier + learned, pack.index, prepared.order), REMEDY)
    log(f"{learned.sum():,} choices of the reply's tokens, and {earlier.sum():,} that the run began with, are kept in {stated}")


def _earlier(config: Config, pack: Pack) -> NDArray[np.int64]:
    """Counts of the profile that the run began with; nothing where there is none, or where it tells only the order."""
    stated, own = config.experts.profile, pack.folder / PROFILE_FILE
    path = own if stated is None else Path(stated).expanduser()
    counts = load_counts(path, pack.index) if stated is not None or own.exists() else None
    g = pack.index.geometry
    return np.zeros((g.num_layers, g.num_experts), np.int64) if counts is None else counts


def _path(config: Config) -> Path | None:
    stated = config.experts.profile_save
    return None if stated is None else Path(stated).expanduser()
