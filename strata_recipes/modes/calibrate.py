"""mode=calibrate: measures this PC and writes it as a hardware profile into the user's config folder."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import numpy as np

from strata_recipes.calibrate.hardware_file import MARK, Source, Told, hardware_yaml, startup_yaml
from strata_recipes.calibrate.measured import Measured, agree, interleaved
from strata_recipes.calibrate.probes import cpu_probes, drive_probes, gpu_probes
from strata_recipes.config.compose import config_hash, resolved_yaml
from strata_recipes.config.places import conf_dir, user_dir
from strata_recipes.config.schema import Config
from strata_recipes.errors import ConfigError, FileError
from strata_recipes.machine.cores import usable_cores
from strata_recipes.machine.drive import existing_folder
from strata_recipes.machine.gpu import find_card
from strata_recipes.machine.memory import total
from strata_recipes.machine.probe import own_os
from strata_recipes.modes.interrupt import raise_if_interrupted
from strata_recipes.modes.prepare import results_folder
from strata_recipes.pack.cache import cache_root
from strata_recipes.results.atomic import write_text
from strata_recipes.results.names import safe_name
from strata_recipes.results.status import DONE
from strata_recipes.units import MiB

_BLOCK = 4 * MiB
_JSON = "calibration.json"


def calibrate(config: Config, overrides: list[str]) -> int:
    """Measures, writes, and says whether the last calibration of that name found the same."""
    asked = config.calibrate
    folder = user_dir() if asked.folder is None else Path(asked.folder).expanduser()
    target = folder / "hardware" / f"{asked.name}.yaml"
    _check(asked.name, target)
    own = (config.startup.merge, config.startup.threads)
    with _big_file(config) as path:
        found = interleaved(drive_probes(path, own) | cpu_probes() | gpu_probes(), asked.rounds)
    raise_if_interrupted()
    source = Source(shlex.join(["strata", *overrides]), f"{datetime.now():%Y-%m-%d}")
    before = _last(Path(config.results.root).expanduser(), asked.name)
    _write(target, hardware_yaml(asked.name, _told(), found, own, source))
    tuned = startup_yaml(found, own, source)
    if tuned is not None:
        _write(folder / "startup" / f"{asked.name}.yaml", tuned)
    record = results_folder(config, config_hash(config))
    record.write_before(resolved_yaml(config), overrides, None, None)
    write_text(
        record.path / _JSON, json.dumps({"name": asked.name, "values": {key: m.values for key, m in found.items()}}, indent=1) + "\n"
    )
    record.end(DONE)
    _say(found, before)
    print(f"use it: hardware={asked.name}" + (f" startup={asked.name}" if tuned else "") + _how_to_find(folder))
    print(f"profile: {target}")
    return 0


def _check(name: str, target: Path) -> None:
    """A name that is a file's on every system and hides nothing that is shipped or the user's own."""
    if safe_name(name) != name:
        raise ConfigError(f"calibrate.name={name!r} is no name for a file on every system: use {safe_name(name)!r}")
    if (conf_dir() / "hardware" / f"{name}.yaml").exists():
        raise ConfigError(f"calibrate.name={name} is a profile that is shipped: choose another name")
    if target.exists() and not target.read_text(encoding="utf-8").startswith(MARK):
        raise FileError(f"{target} was not written by mode=calibrate: it stays, choose another calibrate.name")


def _told() -> Told:
    card = find_card()
    return Told(own_os().value, total(), usable_cores(), card and (card.name, card.capability, card.vram_bytes))


@contextmanager
def _big_file(config: Config) -> Iterator[Path]:
    """Random bytes on the pack's drive, gone afterwards: a drive may compress zeros."""
    place = cache_root() if config.model.pack is None else Path(config.model.pack).expanduser()
    try:
        with tempfile.NamedTemporaryFile(dir=existing_folder(place), prefix=".calibrate-") as file:
            block = np.random.default_rng(0).integers(0, 256, _BLOCK, dtype=np.uint8)
            for _ in range(max(1, config.calibrate.file_bytes // _BLOCK)):
                file.write(block.data)
            file.flush()
            os.fsync(file.fileno())
            yield Path(file.name)
    except OSError as error:
        raise FileError(
            f"the drive of {place} cannot be measured ({error.strerror or error}, errno {error.errno}): "
            f"name a folder with {config.calibrate.file_bytes} bytes of room by model.pack"
        ) from error


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{path.parent} cannot be made ({error.strerror or error}): name another calibrate.folder") from error
    write_text(path, text)


def _last(root: Path, name: str) -> dict[str, Measured]:
    """What the newest calibration of that name below the results root found."""
    for path in sorted(root.glob(f"calibrate/*/{_JSON}"), key=lambda path: path.parent.name, reverse=True):
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["name"] == name:
            return {key: Measured(tuple(values)) for key, values in data["values"].items()}
    return {}


def _say(found: dict[str, Measured], before: dict[str, Measured]) -> None:
    for key, now in found.items():
        then = before.get(key)
        compared = (
            "" if then is None else f"; before {then.median:.4g}: {'agrees' if agree(now, then) else 'differs by more than the spread'}"
        )
        unit = "operations/s" if key.endswith("flops") else "bytes/s"
        print(f"{key}: {now.median:.4g} {unit} ({min(now.values):.4g} to {max(now.values):.4g}){compared}")


def _how_to_find(folder: Path) -> str:
    return "" if folder == user_dir() else f" --config-dir {folder}"
