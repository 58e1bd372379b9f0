"""mode=reproduce: runs a results folder again on this machine, and says what is equal, what differs, and which facts do."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from strata_recipes.bench.reproduction import Comparison, Document, compared, equal_told
from strata_recipes.bench.watchdog import Watchdog
from strata_recipes.config.compose import config_hash, resolved_yaml
from strata_recipes.config.schema import Config, Hardware
from strata_recipes.errors import EXIT_DONE, ClaimError, FileError
from strata_recipes.machine.probe import resolve_hardware
from strata_recipes.modes.children import replay_command, watched
from strata_recipes.modes.own_words import own_words_only
from strata_recipes.modes.prepare import end_told
from strata_recipes.modes.progress import console
from strata_recipes.pack.cache import cache_root
from strata_recipes.results.machine_facts import facts
from strata_recipes.results.record import ResultsFolder
from strata_recipes.results.status import DONE


def reproduce(config: Config, overrides: list[str]) -> int:
    """0 where all is equal that must be; ClaimError names the first thing that is not, and the facts that differ."""
    own_words_only(overrides, "reproduce")
    source = _checked(Path(config.result or "").expanduser())
    there = _document(source)
    folder = ResultsFolder.make(Path(config.results.root).expanduser(), "reproduce", config_hash(config), datetime.now())
    folder.write_before(resolved_yaml(config), overrides, None, None)
    with end_told(folder):
        folder.started()
        ended = watched(replay_command(source, folder.path), folder.path / "out.txt", Watchdog(0, 0.0))
        here = _document(_made(folder.path, ended.last_line))
        _, machine = resolve_hardware(Hardware(), cache_root())
        found = compared(there, here, facts(machine))
        folder.write("reproduce.json", json.dumps(asdict(found), indent=1, ensure_ascii=False) + "\n")
        folder.write("README.md", _readme(found, source.name, equal_told(there, found)))
        if found.figures:
            console().print(_table(found))
        for line in found.facts:
            print(f"another fact: {line}")
        print(equal_told(there, found), flush=True)
        _raise_different(found)
        folder.set_status(DONE)
    print(f"reproduced: all that has to be equal is; results: {folder.path}")
    return EXIT_DONE


def _checked(source: Path) -> Path:
    for name in ("resolved.yaml", "status.json"):
        if not (source / name).is_file():
            raise FileError(f"result={source} holds no {name}: name the folder of one run or bench, as results/run/FOLDER")
    return source


def _document(folder: Path) -> Document:
    """Every file that is compared; a broken one is an error, a missing one is not compared."""
    return Document(**{field.name: found for field in fields(Document) if (found := _json(folder / f"{field.name}.json")) is not None})


def _json(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileError(f"{path} is not JSON ({error}): it was cut or changed, take another folder") from error


def _made(root: Path, last_line: str) -> Path:
    """The folder of the new run; where it was refused before it had one, its own words say why."""
    made = next((path.parent for path in sorted(root.glob("*/*/status.json"))), None)
    if made is None:
        raise ClaimError(f"the folder's config does not run here ({last_line}): mend that, or run it where it was made")
    return made


def _raise_different(found: Comparison) -> None:
    if found.differ:
        why = f"; other facts are {'; '.join(found.facts[:3])}" if found.facts else "; machine and software are the same as far as recorded"
        more = f" and {len(found.differ) - 1} more" if found.differ[1:] else ""
        raise ClaimError(f"not reproduced: {found.differ[0]}{more}{why}: look into reproduce.json")


def _table(found: Comparison) -> Table:
    table = Table(box=None, pad_edge=False)
    for head in ("figure", "there", "here", "here / there"):
        table.add_column(head, overflow="fold")
    for row in found.figures:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _readme(found: Comparison, name: str, equal: str) -> str:
    rows = ["| figure | there | here | here / there |", "|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in found.figures)]
    spread = "the spread of these figures, as each is of one run; a bench of both machines tells it"
    parts = [
        f"# {name}, run again",
        f"E{equal.removeprefix('e')}.",
        _list("Different, and should be equal", found.differ),
        _list("Other facts of machine and software", found.facts),
        *(["\n".join(rows)] if found.figures else []),
        f"What was not measured: {spread if found.figures else 'anything, as nothing was there'}.",
    ]
    return "\n\n".join(parts) + "\n"


def _list(title: str, lines: Any) -> str:
    return f"{title}:\n\n" + ("\n".join(f"* {line}" for line in lines) or "* none")
