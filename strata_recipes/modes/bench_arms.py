"""From the arms of a bench to one resolved config each, which a child process replays. Runs nothing."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig

from strata_recipes.config.bench_schema import Bench, Verify
from strata_recipes.config.choices import ModeName
from strata_recipes.config.compose import compose_config, data_yaml
from strata_recipes.config.leaf_lines import leaf_lines, value_at
from strata_recipes.config.leaves import defaults, leaves, plain
from strata_recipes.config.schema import Config, Mode
from strata_recipes.config.task_schema import Calibrate, Profile
from strata_recipes.errors import ConfigError
from strata_recipes.modes.children import HERE

_NOT_AN_ARMS = ("mode", "recipe", "bench", "verify", "result", "results.root", "calibrate", "profile")
_SCHEMA = (
    "import sys, json; sys.path.insert(0, sys.argv[1]); from strata_recipes.config.leaves import defaults; "
    "from strata_recipes.config.schema import Config; print(json.dumps(defaults(Config)))"
)
_SCHEMA_SECONDS = 60


@dataclass(frozen=True)
class Arm:
    """`config` is that of one run; `lines` say in single leaves what it has other than the bench's own."""

    name: str
    number: int  # from 1
    config: Config
    lines: tuple[str, ...]
    checkout: Path = HERE


def composed_arms(config: Config, overrides: Sequence[str]) -> list[Arm]:
    """Each arm's overrides after those of the command line; ConfigError holds the faults of all arms."""
    faults = [fault for name, lines in config.bench.arms.items() for fault in _foreign(name, lines)]
    base, arms = _run_of(config), []
    for number, (name, lines) in enumerate(config.bench.arms.items(), start=1):
        try:
            own = _run_of(_composed(overrides, lines))
        except ConfigError as error:
            faults += [f"bench.arms.{name}: {fault}" for fault in error.faults]
            continue
        arms.append(Arm(name, number, own, tuple(leaf_lines(own, base)), _checkout(config, name, faults)))
    if faults:
        raise ConfigError(faults)
    return arms


def arm_yaml(arm: Arm) -> str:
    """resolved.yaml for the arm's checkout: keys that another build does not have are left out where they say nothing."""
    data = plain(arm.config)
    if arm.checkout != HERE:
        known = _schema_of(arm)
        own = defaults(Config)
        for key in [leaf.key for leaf in leaves(Config)]:
            if _has(known, key):
                continue
            if value_at(data, key) != value_at(own, key):
                raise ConfigError(f"bench.checkouts.{arm.name}: {arm.checkout} has no {key}, which this arm sets: leave it out of the arm")
            _drop(data, key)
    return data_yaml(data)


def _run_of(config: Config) -> Config:
    """What one run of it would be: keys of the bench and of other modes at rest."""
    alone = dataclasses.replace(config, verify=Verify(), result=None, calibrate=Calibrate(), profile=Profile())
    return dataclasses.replace(alone, mode=Mode(ModeName.run), bench=Bench())


def _composed(overrides: Sequence[str], lines: Sequence[str]) -> Config:
    """As the command line composed this bench, and the arm's overrides last."""
    job = HydraConfig.get()
    folder = next((source.path for source in job.runtime.config_sources if source.provider == "command-line"), None)
    return compose_config([*overrides, *lines], folder, str(job.job.config_name))


def _foreign(name: str, lines: Sequence[str]) -> list[str]:
    keys = [line.lstrip("+").partition("=")[0] for line in lines]
    found = [key for key in keys if any(key == own or key.startswith(f"{own}.") for own in _NOT_AN_ARMS)]
    return [f"bench.arms.{name} sets {key}, which is the bench's own: say it beside the arms" for key in found]


def _checkout(config: Config, name: str, faults: list[str]) -> Path:
    stated = config.bench.checkouts.get(name)
    if stated is None:
        return HERE
    folder = Path(stated).expanduser().resolve()
    if not (folder / "strata_recipes" / "modes" / "entry.py").is_file():
        faults.append(f"bench.checkouts.{name}={stated} holds no strata_recipes/modes/entry.py: name the top folder of a checkout")
    return folder


def _schema_of(arm: Arm) -> dict[str, Any]:
    """The keys that the other build knows, as it says itself."""
    done = subprocess.run(
        [sys.executable, "-c", _SCHEMA, str(arm.checkout)], capture_output=True, text=True, encoding="utf-8", timeout=_SCHEMA_SECONDS
    )
    if done.returncode:
        last = (done.stderr.strip() or "no word").splitlines()[-1]
        raise ConfigError(f"bench.checkouts.{arm.name}: {arm.checkout} does not tell its config's keys ({last}): take a later checkout")
    return dict(json.loads(done.stdout))


def _has(data: Any, key: str) -> bool:
    for name in key.split("."):
        if not isinstance(data, dict) or name not in data:
            return False
        data = data[name]
    return True


def _drop(data: dict[str, Any], key: str) -> None:
    """A section that is left empty goes too."""
    name, _, rest = key.partition(".")
    if rest:
        _drop(data[name], rest)
    if not rest or not data[name]:
        del data[name]
