"""The front of this room: what others call of the config. The work is done in the files named below."""

from strata_recipes.config.command_line import hydra_main, tell
from strata_recipes.config.composition import compose_config
from strata_recipes.config.dumping import config_hash, data_yaml, resolved_yaml
from strata_recipes.config.leaves import leaves
from strata_recipes.config.places import conf_dir, register

__all__ = ["compose_config", "conf_dir", "config_hash", "data_yaml", "hydra_main", "leaves", "register", "resolved_yaml", "tell"]
