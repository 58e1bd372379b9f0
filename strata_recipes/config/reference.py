"""docs/config.md: every key of the schema with what it takes, its default and what it means. Knows no value of a run.

`python -m strata_recipes.config.reference` writes it and docs/schema/ anew; a test holds them against the schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strata_recipes.config.checking import wanted
from strata_recipes.config.comments import said
from strata_recipes.config.json_schema import schema_files
from strata_recipes.config.leaves import Member, members, plain
from strata_recipes.config.names import NO_GROUPS, RECIPE
from strata_recipes.config.overrides import options
from strata_recipes.config.places import conf_dir
from strata_recipes.config.schema import Config

DOCS = Path(__file__).parents[2] / "docs"
_TABLE = ("| key | takes | default | what it means |", "|---|---|---|---|")
_HEAD = """\
# Config reference

Made from the schema by `python -m strata_recipes.config.reference`; change `strata_recipes/config/schema.py`, not this page.

Every key can be given on the command line (`key=value`) or in a YAML file. Sizes and rates read as `6GiB`, `6 GB`,
`6_000`, `8e9`, `1.6GB/s`; GB is 1e9 bytes, GiB is 2^30. `null` stands for not stated. The default below is the schema's;
a group's option file may state another, which `strata --cfg job --resolve` shows. An unknown key is refused with the
nearest known name.
"""


def reference() -> str:
    """The whole page."""
    parts = [_HEAD, *(_section(name, member) for name, member in members(Config).items())]
    chosen = ", ".join(f"`{name}`" for name in options(RECIPE, [conf_dir()]))
    parts.append(f"## recipe\n\nSeveral of the above under one name, or `null`: {chosen}.\n")
    return "\n".join(parts)


def files() -> dict[str, str]:
    """Every generated file below docs/, with its text."""
    schemas = {f"schema/{name}.json": json.dumps(data, indent=1, ensure_ascii=False) + "\n" for name, data in schema_files().items()}
    return {"config.md": reference(), **schemas}


def _section(name: str, member: Member) -> str:
    lines = [f"## {name}", ""]
    if member.kind != "section":
        return "\n".join([*lines, *_TABLE, _row(name, member, getattr(Config(), name), said(Config).fields[name])]) + "\n"
    about = said(member.hint).text
    lines += [about, ""] if about else []
    if name not in NO_GROUPS:
        lines += [f"Options: {', '.join(f'`{option}`' for option in options(name, [conf_dir()]))}.", ""]
    lines += [*_TABLE, *_rows(name, member.hint, plain(member.hint()))]
    return "\n".join(lines) + "\n"


def _rows(prefix: str, cls: type, defaults: dict[str, Any]) -> Iterator[str]:
    about = said(cls).fields
    for name, member in members(cls).items():
        key = f"{prefix}.{name}"
        if member.kind == "section":
            yield from _rows(key, member.hint, defaults[name])
        else:
            yield _row(key, member, defaults[name], about[name])


def _row(key: str, member: Member, default: Any, about: str) -> str:
    return f"| `{key}` | {_takes(member)} | `{json.dumps(default, ensure_ascii=False)}` | {_cell(about)} |"


def _takes(member: Member) -> str:
    if member.kind not in ("list", "map"):
        return _cell(wanted(member))
    element = member.element
    inside = f"entries of {', '.join(f'`{name}`' for name in members(element.hint))}" if element.kind == "section" else element.kind
    form = "a list, [a, b, ...], of" if member.kind == "list" else "by any names, each a"
    return f"{form} {inside}" + (", or null" if member.optional else "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write every generated file."""
    for name, text in files().items():
        path = DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
