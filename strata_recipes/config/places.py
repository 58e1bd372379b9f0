"""Where the config files lie, and the schema under its name in Hydra's store. Does not compose."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hydra.core.config_store import ConfigStore
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


def register() -> None:
    """Put the schema's keys and defaults into Hydra's store, so that config.yaml can name them first.

    As plain values: OmegaConf's own typing stops at the first fault and refuses 8e3 for an int. checking.py holds the types.
    """
    ConfigStore.instance().store(name=SCHEMA_NAME, node=OmegaConf.create(defaults(Config)))
