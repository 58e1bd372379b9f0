"""A composed config as plain data: each interpolation resolved once, each that cannot be is a fault. Does not know the schema."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from strata_recipes.config.checking import BROKEN

_DEEPEST = 8  # the schema nests 4 deep; a section that holds itself through an interpolation never ends


def resolved(node: Any, key: str, faults: list[str], depth: int = 0) -> Any:
    """Dicts, lists and literals; a value that cannot be had is BROKEN, with its fault."""
    if not isinstance(node, DictConfig | ListConfig):
        return node
    if depth > _DEEPEST:
        faults.append(f"{key.rsplit('.', _DEEPEST)[0]} holds itself through an interpolation: write the value out")
        return BROKEN
    if isinstance(node, DictConfig):
        return {str(name): _child(node, name, f"{key}.{name!s}" if key else str(name), faults, depth) for name in node}
    return [_child(node, at, f"{key}.{at}", faults, depth) for at in range(len(node))]


def _child(node: DictConfig | ListConfig, name: Any, key: str, faults: list[str], depth: int) -> Any:
    if OmegaConf.is_missing(node, name):
        faults.append(f"{key} is ???, which stands for a value that you must state: add {key}=VALUE")
        return BROKEN
    try:
        value = node[name]
    except (OmegaConfBaseException, RecursionError) as error:
        faults.append(f"{key}: {_written(node, name)} cannot be resolved ({_why(error)}), write the value or mend what it points at")
        return BROKEN
    return resolved(value, key, faults, depth + 1)


def _written(node: DictConfig | ListConfig, name: Any) -> str:
    raw: Any = OmegaConf.to_container(node, resolve=False)
    return repr(raw[name])


def _why(error: BaseException) -> str:
    if isinstance(error, RecursionError) or "recursive" in str(error).lower():
        return "it leads back to itself"
    return str(error).strip().splitlines()[0]
