"""Claims as values: what is said, the command that shows it, where its number lies, the bound that must hold. Runs nothing."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from strata_recipes.bench.judge import at
from strata_recipes.errors import ConfigError

SIZES = ("small", "large")
PRINTED = "printed"  # metric `printed:LABEL`: the first number after the label in what the command prints
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Claim:
    """`metric` is FILE:KEY of the results folder, or printed:LABEL; `bound` an operator and a number or word, as `<= 0.1`."""

    name: str
    says: str
    command: str
    metric: str
    bound: str
    size: str

    @property
    def place(self) -> tuple[str, str]:
        file, _, key = self.metric.partition(":")
        return file, key

    def holds(self, value: Any) -> bool:
        """Whether the bound holds; a number against a word never does."""
        sign, wanted = _bound(self.bound)
        if isinstance(wanted, float) != (isinstance(value, int | float) and not isinstance(value, bool)):
            return False
        return _COMPARE[sign](value, wanted)


def claims_of(data: Any, where: str) -> list[Claim]:
    """The claims of a parsed YAML file named `where`; ConfigError holds every fault."""
    rows = data.get("claims") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        raise ConfigError(f"{where} holds no list `claims`: write `claims:` and a list below it")
    faults = [fault for number, row in enumerate(rows, start=1) for fault in _faults(row, f"{where}, claim {number}")]
    names = [row["name"] for row in rows if isinstance(row, dict) and "name" in row]
    faults += [f"{where}: two claims are named {name!r}: rename one" for name in sorted({n for n in names if names.count(n) > 1})]
    if faults:
        raise ConfigError(faults)
    return [Claim(**row) for row in rows]


def value_of(claim: Claim, document: Mapping[str, Any] | None, printed: str) -> Any:
    """The claim's number: out of the file's document, or out of what was printed; None where it is not there."""
    file, key = claim.place
    if file != PRINTED:
        return at(document or {}, key)
    _, found, rest = printed.partition(key)
    match = _NUMBER.search(rest.splitlines()[0]) if found and rest else None
    return float(match[0].replace(",", "")) if match else None


def _faults(row: Any, where: str) -> list[str]:
    names = [field.name for field in fields(Claim)]
    if not isinstance(row, dict):
        return [f"{where} is {row!r}, wanted are its keys: {', '.join(names)}"]
    found = [f"{where} has no {name}: add it" for name in names if not isinstance(row.get(name), str)]
    found += [f"{where} has a key {name}, known are {', '.join(names)}" for name in row if name not in names]
    if found:
        return found
    if not row["metric"].partition(":")[2]:
        found.append(f"{where}: metric {row['metric']!r} is not FILE:KEY, as bench.json:identity.tokens_md5, or printed:LABEL")
    if not re.match(r"(<=|>=|==|<|>) *\S", row["bound"]):
        found.append(f"{where}: bound {row['bound']!r} does not begin with one of {', '.join(_COMPARE)} and a value")
    if row["size"] not in SIZES:
        found.append(f"{where}: size {row['size']!r} is none of {', '.join(SIZES)}")
    if not row["command"].startswith("python "):
        found.append(f"{where}: command {row['command']!r} does not begin with `python `, as `python run.py recipe=ab_startup`")
    return found


def _bound(text: str) -> tuple[str, float | str]:
    match = re.match(r"(<=|>=|==|<|>) *(.*)", text)
    assert match, "checked when it was read"
    try:
        return match[1], float(match[2])
    except ValueError:
        return match[1], match[2].strip()
