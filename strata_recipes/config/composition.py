"""From overrides and files to a checked Config, through Hydra's compose. Does not run anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig, open_dict

from strata_recipes.config.checking import read_section
from strata_recipes.config.leaves import members
from strata_recipes.config.names import GROUPS, RECIPE
from strata_recipes.config.overrides import Checked, check_overrides
from strata_recipes.config.places import CONFIG_NAME, conf_dir, config_folders, register
from strata_recipes.config.resolving import resolved
from strata_recipes.config.restated import restate
from strata_recipes.config.rules import contradictions
from strata_recipes.config.schema import Config
from strata_recipes.config.told import HYDRA_ERRORS, told
from strata_recipes.config.user_files import file_faults
from strata_recipes.errors import ConfigError

_SEARCHPATH = "hydra.searchpath"


def compose_config(overrides: Sequence[str] = (), config_dir: str | None = None, config_name: str = CONFIG_NAME) -> Config:
    """The Config of a run, all literal; ConfigError holds every fault of overrides and files."""
    return compose_checked(check_request(overrides, config_dir, config_name), config_dir, config_name)


def compose_checked(checked: Checked, config_dir: str | None, config_name: str) -> Config:
    """The Config of the good overrides; ConfigError holds the faults of the others and all that composing finds."""
    faults = list(checked.faults)
    config: Config | None = None
    try:
        node, choices = _composed(checked.good, config_dir, config_name)
        config = finished(node, choices, faults)
        restate(config, checked.good)
    except HYDRA_ERRORS as error:
        faults.append(told(error))
    if config is None or faults:
        raise ConfigError(list(dict.fromkeys(faults)))
    return config


def check_request(overrides: Sequence[str], config_dir: str | None, config_name: str) -> Checked:
    """What can be told before Hydra runs: faults of overrides; ConfigError where the user's folder or its files cannot be read."""
    known = config_name == CONFIG_NAME and not any(line.lstrip("+").startswith(_SEARCHPATH) for line in overrides)
    folders = [*config_folders(), *([Path(config_dir)] if config_dir is not None else [])]
    checked = check_overrides(overrides, folders if known else None)
    if config_dir is None:
        return checked
    if not Path(config_dir).is_dir():
        raise ConfigError([*checked.faults, f"--config-dir {config_dir}: there is no such folder, name one that exists"])
    unreadable, misspelt = file_faults(Path(config_dir).resolve(), config_name, checked.good)
    faults = (*checked.faults, *unreadable, *misspelt)
    if unreadable:
        raise ConfigError(faults)  # Hydra would not get through these
    return Checked(checked.good, faults)


def finished(node: DictConfig, choices: Mapping[str, Any], faults: list[str]) -> Config:
    """The Config of a composed node, every interpolation resolved once; faults are appended."""
    data = resolved(node, "", faults)
    faults += [
        f"{group} is null in a defaults list: a group cannot be empty, name one of its options"
        for group, option in choices.items()
        if option is None and group in GROUPS and group != RECIPE
    ]
    if RECIPE in data:
        data.pop(RECIPE)
        faults.append(f"{RECIPE}: its file lacks `# @package _global_` as first line, so its keys go nowhere: add it")
    missing = [name for name in members(Config) if name not in data]
    if missing:
        faults.append(f"the config lacks {', '.join(missing)}: begin its defaults list with `config_schema`, or with `config`")
    config: Config = read_section(Config, data, "", faults)
    if not faults:  # what a refused override would have set may be just what is missing
        faults += contradictions(config)
    return config


def _composed(overrides: Sequence[str], config_dir: str | None, config_name: str) -> tuple[DictConfig, Mapping[str, Any]]:
    register()
    with _hydra(config_dir):
        node = compose(config_name, overrides=list(overrides), return_hydra_config=True)
    choices = node.hydra.runtime.choices
    with open_dict(node):
        del node["hydra"]
    return node, choices


def sweep_settings(overrides: Sequence[str], config_dir: str | None, config_name: str) -> DictConfig:
    """What the jobs of a sweep share, with Hydra's own settings; the settings that it varies stand as the files have them."""
    register()
    with _hydra(config_dir):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        return hydra.compose_config(config_name, list(overrides), RunMode.MULTIRUN, with_log_configuration=False)


@contextmanager
def _hydra(config_dir: str | None) -> Iterator[None]:
    """Hydra's compose with the user's folder where --config-dir puts it, so that a primary config may lie there."""
    outer = GlobalHydra.instance().hydra  # of the command line, where a running job composes another model's config
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            if config_dir is not None:
                paths = create_config_search_path(str(conf_dir()))
                paths.prepend("command-line", f"file://{Path(config_dir).resolve()}", SearchPathQuery(provider="schema"))
                GlobalHydra.instance().clear()
                Hydra.create_main_hydra2("strata", paths)
            yield
    finally:
        GlobalHydra.instance().hydra = outer
