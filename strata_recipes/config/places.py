"""Where the config files lie, and the schema under its name in Hydra's store. Does not compose."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from strata_recipes.config.leaves import defaults
from strata_recipes.config.schema import Config
from strata_recipes.errors import ConfigError

SCHEMA_NAME = "config_schema"
CONFIG_NAME = "config"


def conf_dir() -> Path:
    """The absolute folder of the config files: packaged with an installed strata_recipes, else the repository's conf/."""
    packaged = importlib.util.find_spec("strata_recipes.conf")
    folder = Path(packaged.origin).parent if packaged and packaged.origin else Path(__file__).parents[2] / "conf"
    if not (folder / f"{CONFIG_NAME}.yaml").is_file():
        raise ConfigError(f"{folder} holds no {CONFIG_NAME}.yaml: the installation is incomplete, install strata-recipes again")
    return folder.resolve()


def user_dir() -> Path:
    """The user's own config folder, which need not be there: $XDG_CONFIG_HOME or ~/.config, %APPDATA% on Windows."""
    stated = os.environ.get("APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME", "")
    base = Path(stated) if stated and Path(stated).is_absolute() else Path(os.path.expanduser("~/.config"))
    return base / "strata_recipes"


def config_folders() -> list[Path]:
    """Where options are looked for: the shipped ones first, so that a user's file never changes what a shipped name means."""
    return [conf_dir(), *([user_dir()] if user_dir().is_dir() else [])]


class UserFolder(SearchPathPlugin):
    """Hydra's search path ends in the user's folder."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if user_dir().is_dir():
            search_path.append("user", f"file://{user_dir()}")


def register() -> None:
    """Put the schema's keys and defaults into Hydra's store, so that config.yaml can name them first, and the user's folder on its path.

    As plain values: OmegaConf's own typing stops at the first fault and refuses 8e3 for an int. checking.py holds the types.
    """
    Plugins.instance().register(UserFolder)
    ConfigStore.instance().store(name=SCHEMA_NAME, node=OmegaConf.create(defaults(Config)))
