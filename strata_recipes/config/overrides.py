"""Command-line overrides against the schema, before Hydra sees them: keys, options and values, every fault at once.

Does not compose: a value with an interpolation is checked once it is resolved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, QuotedString
from hydra.errors import HydraException

from strata_recipes.config.checking import read_value
from strata_recipes.config.hydra_keys import hydra_key_fault
from strata_recipes.config.leaves import Member
from strata_recipes.config.maps import ADDED, in_map, map_line
from strata_recipes.config.names import GROUPS, RECIPE, find, nearest, unknown_key
from strata_recipes.config.quoting import advice, quoted


@dataclass(frozen=True)
class Checked:
    """The overrides that Hydra may see, as it shall see them, and the faults of the others."""

    good: tuple[str, ...]
    faults: tuple[str, ...]


def check_overrides(lines: Iterable[str], folders: Sequence[Path] | None) -> Checked:
    """Check each override. `folders` hold the groups' options; None: they are not known here, Hydra finds them."""
    good: list[str] = []
    faults: list[str] = []
    for line in lines:
        found: list[str] = []
        line = _check(line, folders, found)
        if found:
            faults += found
        else:
            good.append(line)
    return Checked(tuple(good), tuple(faults))


def without_sweeps(lines: Iterable[str]) -> tuple[str, ...]:
    """The overrides that hold one value, for composing what all jobs of a sweep share."""
    parser = OverridesParser.create()
    return tuple(line for line in lines if not parser.parse_override(line).is_sweep_override())


def options(group: str, folders: Iterable[Path]) -> list[str]:
    """The options of a group, from its YAML files."""
    return sorted({path.stem for folder in folders for path in (folder / group).glob("*.yaml")})


def _check(line: str, folders: Sequence[Path] | None, faults: list[str]) -> str:
    """The override as Hydra shall see it; its faults go to `faults`."""
    if "=" not in line and not line.startswith("~"):
        faults.append(f"{line!r} is not key=value: write for example {_example(line)}")
        return line
    line = map_line(_home(line))
    try:
        override = OverridesParser.create().parse_override(line)
    except HydraException as error:
        faults.append(f"{line} cannot be read ({_first_line(error)}): {advice(line)}")
        return line
    key = override.key_or_group
    if key.partition(".")[0].partition("/")[0] == "hydra":
        faults += hydra_key_fault(line, key)
        return line
    if override.is_delete():
        faults.append(f"{line} deletes, but every key of the config is needed: leave it out")
    elif override.package is not None:
        faults.append(f"{line} puts a group into another place, which this config has not: write {key}=OPTION")
    else:
        return _check_value(override, ADDED * in_map(key) + line.lstrip("+"), folders, faults)
    return line


def _home(line: str) -> str:
    """A path below ~, which neither shells (after a key with a point) nor Hydra's grammar take bare, as text."""
    key, _, raw = line.partition("=")
    member = find(key.lstrip("+"))
    return quoted(key, raw.strip()) if raw.startswith("~") and "," not in raw and member is not None and member.kind == "text" else line


def _check_value(override: Override, line: str, folders: Sequence[Path] | None, faults: list[str]) -> str:
    key = override.key_or_group
    member = find(key)
    values = _values(override)
    if key == RECIPE and values == [None]:
        return f"~{RECIPE}"  # Hydra's own word for a group without option
    if key in GROUPS and not all(isinstance(value, dict) for value in values):
        faults += [fault for value in values for fault in _option_faults(key, value, folders)]
    elif member is None:
        faults.append(unknown_key(key))
    elif member.kind == "text" and any(_respelt(value, line) for value in values):
        return _as_text(override, line, faults)
    else:
        for value in values:
            _check_plain(member, value, key, faults)
    return line


def _values(override: Override) -> list[Any]:
    """The value, or each of a sweep's choices; a range or a glob only Hydra can spell out."""
    if not override.is_sweep_override():
        return [override.value()]
    sweep = override._value
    return [_bare(item) for item in sweep.list] if isinstance(sweep, ChoiceSweep) else []


def _bare(item: Any) -> Any:
    return item.text if isinstance(item, QuotedString) else item


def _check_plain(member: Member, value: Any, key: str, faults: list[str]) -> None:
    found: list[str] = []
    read_value(member, value, key, found)
    if "${" not in str(value):
        faults += found
    else:
        faults += [fault for fault in found if "there is no such key" in fault]


def _respelt(value: Any, line: str) -> bool:
    """Whether Hydra would hand on another spelling: 1e5 becomes a number, the two backslashes of \\\\server one."""
    return isinstance(value, bool | int | float) or line.partition("=")[2].lstrip().startswith("\\\\")


def _as_text(override: Override, line: str, faults: list[str]) -> str:
    """The override with its value in quotes, as it was typed."""
    key, _, raw = line.partition("=")
    if override.is_sweep_override():
        faults.append(f"{key}: {raw!r} holds a number where text is meant: put each of its values into quotes")
    return quoted(key, raw.strip())


def _option_faults(group: str, value: Any, folders: Sequence[Path] | None) -> list[str]:
    if isinstance(value, list) and group == RECIPE:
        return [fault for option in value for fault in _option_faults(group, option, folders)]
    if value is None:
        return [] if group == RECIPE else [f"{group}=null: a group cannot be empty, {_choose(group, folders)}"]
    if isinstance(value, list):
        return [f"{group}: {value!r} is a list, only one option can hold, {_choose(group, folders)}"]
    known = options(group, folders) if folders is not None else []
    if not known or str(value) in known or "/" in str(value):
        return []
    return [f"{group}={value}: there is no such option, {nearest(str(value), known)}"]


def _choose(group: str, folders: Sequence[Path] | None) -> str:
    return f"choose one of {', '.join(options(group, folders))}" if folders is not None else "name one of its options"


def _example(line: str) -> str:
    return f"{line}=VALUE" if find(line) or line in GROUPS else "mode=plan"


def _first_line(error: HydraException) -> str:
    return str(error).strip().splitlines()[0]
