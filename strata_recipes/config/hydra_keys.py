"""Overrides of Hydra's own settings: a misspelt hydra.* key is named before Hydra runs. Does not know our schema."""

from __future__ import annotations

import dataclasses
import difflib
import typing

from hydra.conf import HydraConf

_HYDRA = "hydra"


def hydra_key_fault(line: str, key: str) -> list[str]:
    """The fault of an override such as hydra.run.dri=x; none for a known key, a hydra/ group or below a free-form one."""
    if "/" in key or key == _HYDRA:
        return []
    at: object = HydraConf
    done = _HYDRA
    for name in key.split(".")[1:]:
        known = typing.get_type_hints(at) if dataclasses.is_dataclass(at) else {}
        if not known:
            return []
        if name not in known:
            return [f"{line}: there is no such key of Hydra's, {_near(name, list(known), done)}"]
        at, done = known[name], f"{done}.{name}"
    if key == "hydra.job.chdir" and line.partition("=")[2].strip().lower() != "false":
        return [f"{line} would move the working folder, and with it every relative path: leave it out"]
    return []


def _near(name: str, known: list[str], parent: str) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"nearest is {parent}.{close[0]}" if close else f"known in {parent} are {', '.join(known)}"
