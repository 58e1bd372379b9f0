"""What Hydra and OmegaConf raise, told as one sentence with a remedy. Catches nothing, only words it."""

from __future__ import annotations

import re

import yaml
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from strata_recipes.config.hydra_keys import hydra_key_fault
from strata_recipes.config.names import GROUPS, find, nearest, unknown_key
from strata_recipes.config.quoting import advice
from strata_recipes.config.user_files import yaml_fault

HYDRA_ERRORS = (HydraException, OmegaConfBaseException, yaml.YAMLError)

_NO_MATCH = re.compile(r"Could not override '([^']*)'\.\s+No match in the defaults list")
_SWEEP = re.compile(r"(?:Ambiguous value for argument|Sweep parameters) '(.*?)'(?:\n| requires|$)", re.DOTALL)
_FULL_KEY = re.compile(r"full_key: (\S+)")
_NOISE = re.compile(r"(?:full_key|reference_type|object_type|Config search path|Search path)[:=].*", re.DOTALL)


def told(error: BaseException) -> str:
    """One sentence for an error of Hydra's, OmegaConf's or the YAML reader's."""
    if isinstance(error, MissingConfigException):
        return _missing(error)
    if isinstance(error, OverrideParseException):
        return f"{error.override} cannot be read: {advice(error.override)}"
    if isinstance(error, yaml.YAMLError):
        mark = getattr(error, "problem_mark", None)
        return yaml_fault(error, mark.name if mark else "a config file")
    text = f"{error}\n{error.__cause__ or ''}"
    if match := _NO_MATCH.search(text):
        return _no_group(match[1], _where(text))
    if match := _SWEEP.search(text):
        return f"{match[1]} holds several values: add -m to run one after the other, or to give it as one text {advice(match[1])}"
    if match := _FULL_KEY.search(text):
        return _at_key(match[1], text)
    return _one_line(text)


def _missing(error: MissingConfigException) -> str:
    group, _, option = (error.missing_cfg_file or "").rpartition("/")
    where = _where(str(error))
    if error.options:
        return f"{group}={option}{where}: there is no such option, {nearest(option, error.options)}"
    if not group:
        return f"--config-name {option}: no folder of the search path holds {option}.yaml: name its folder with --config-dir FOLDER"
    return f"{group}={option}{where}: there is no group {group}, {nearest(group, GROUPS)} (a group in a defaults list begins with /)"


def _no_group(group: str, where: str) -> str:
    if group not in GROUPS:
        return f"{group}{where}: there is no such group, {nearest(group, GROUPS)}"
    return (
        f"{group}{where}: this config was composed without its groups: a replay takes leaves only, such as prefill.chunk=64, "
        f"or compose anew without --config-name"
    )


def _at_key(key: str, text: str) -> str:
    known = find(key) is not None or key.startswith("hydra.")
    if key.startswith("hydra.") and (fault := hydra_key_fault(key, key)):
        return fault[0] + _where(text)
    if not known and "not in" in text:
        return unknown_key(key)
    return f"{key}{_where(text)}: {_one_line(text)}: mend its value"


def _where(text: str) -> str:
    match = re.match(r"In '([^']*)'", text)
    return f" (in {match[1]}.yaml)" if match and match[1] not in ("config", "hydra/config") else ""


def _one_line(text: str) -> str:
    return " ".join(_NOISE.sub("", text).split()) or "the config cannot be composed"
