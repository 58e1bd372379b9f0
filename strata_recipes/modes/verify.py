"""mode=verify: runs the commands of a claim file again, and fails where a bound no longer holds."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table
from rich.text import Text

from strata_recipes.bench.claims import PRINTED, Claim, claims_of, value_of
from strata_recipes.bench.watchdog import Watchdog
from strata_recipes.bench.words import number
from strata_recipes.config.bench_schema import Verify
from strata_recipes.config.choices import ClaimSize
from strata_recipes.config.compose import config_hash, resolved_yaml
from strata_recipes.config.names import nearest
from strata_recipes.config.quoting import quoted
from strata_recipes.config.schema import Config
from strata_recipes.errors import EXIT_DONE, ClaimError, ConfigError, FileError
from strata_recipes.modes.children import HERE, Ended, strata_command, watched
from strata_recipes.modes.own_words import own_words_only
from strata_recipes.modes.prepare import end_told
from strata_recipes.modes.progress import console
from strata_recipes.results.names import safe_name
from strata_recipes.results.record import ResultsFolder
from strata_recipes.results.status import DONE

_SHIPPED = HERE / "benchmarks" / "claims.yaml"
_NO_WATCH = Watchdog(0, 0.0)


@dataclass(frozen=True)
class Verdict:
    claim: Claim
    value: Any
    holds: bool
    why: str


def verify(config: Config, overrides: list[str]) -> int:
    """0 where every claim of the asked size holds; ClaimError names the first that does not."""
    own_words_only(overrides, "verify")
    path = Path(config.verify.claims).expanduser() if config.verify.claims else _SHIPPED
    every = claims_of(_loaded(path), path.name)
    chosen = _chosen(every, config.verify)
    folder = ResultsFolder.make(Path(config.results.root).expanduser(), "verify", config_hash(config), datetime.now())
    folder.write_before(resolved_yaml(config), overrides, None, None)
    with end_told(folder):
        folder.started()
        verdicts = list(_verdicts(chosen, folder))
        folder.write("verify.json", json.dumps([asdict(each) for each in verdicts], indent=1, ensure_ascii=False) + "\n")
        folder.write("README.md", _readme(verdicts, [claim for claim in every if claim not in chosen]))
        console().print(_table(verdicts))
        _raise_broken(verdicts)
        folder.set_status(DONE)
    left = len(every) - len(chosen)
    print(f"{len(verdicts)} claims hold" + (f", {left} were not asked for (verify.size=all runs them)" if left else ""))
    return EXIT_DONE


def _loaded(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(
            f"{path} cannot be read ({error.strerror}, errno {error.errno}): name the claim file with verify.claims=FILE"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML in UTF-8 ({' '.join(str(error).split())}): mend it") from error


def _chosen(every: Sequence[Claim], asked: Verify) -> list[Claim]:
    names = [claim.name for claim in every]
    faults = [f"verify.only: there is no claim {name!r}, {nearest(name, names)}" for name in asked.only if name not in names]
    if faults:
        raise ConfigError(faults)
    if asked.only:
        return [claim for claim in every if claim.name in asked.only]
    return [claim for claim in every if asked.size is ClaimSize.all or claim.size == "small"]


def _verdicts(claims: Sequence[Claim], folder: ResultsFolder) -> Iterator[Verdict]:
    """A command that several claims share runs once."""
    ran: dict[str, tuple[Ended, Path]] = {}
    for count, claim in enumerate(claims, start=1):
        if claim.command not in ran:
            place = folder.path / f"{len(ran) + 1:02}-{safe_name(claim.name)}"
            place.mkdir()
            print(f"{count} of {len(claims)}: {claim.command}", file=sys.stderr, flush=True)
            ran[claim.command] = (watched(_command(claim, place), place / "out.txt", _NO_WATCH), place)
        verdict = _judged(claim, *ran[claim.command])
        folder.log(f"{claim.name}: {'holds' if verdict.holds else 'does not hold'}, {verdict.why}")
        yield verdict


def _command(claim: Claim, place: Path) -> list[str]:
    """`python run.py ...` with its results below `place`; any other command as it is."""
    words = shlex.split(claim.command)[1:]
    if words[:1] == ["run.py"]:
        return strata_command([*words[1:], quoted("results.root", str(place))])
    return [sys.executable, *words]


def _judged(claim: Claim, ended: Ended, place: Path) -> Verdict:
    if ended.exit_code != EXIT_DONE:
        return Verdict(claim, None, False, f"its command ended with exit code {ended.exit_code} ({ended.last_line})")
    file, key = claim.place
    found = next(iter(sorted(place.glob(f"*/*/{file}"))), None)
    if file != PRINTED and found is None:
        return Verdict(claim, None, False, f"its command left no {file}")
    document = json.loads(found.read_text(encoding="utf-8")) if found else None
    value = value_of(claim, document, (place / "out.txt").read_text(encoding="utf-8", errors="replace"))
    if value is None:
        return Verdict(claim, None, False, f"{key!r} is not in {'what it printed' if file == PRINTED else file}")
    return Verdict(claim, value, claim.holds(value), f"{claim.metric} is {_shown(value)}, wanted {claim.bound}")


def _raise_broken(verdicts: Sequence[Verdict]) -> None:
    broken = [each for each in verdicts if not each.holds]
    if broken:
        first = broken[0]
        more = f"; so do {len(broken) - 1} more of {len(verdicts)}" if broken[1:] else ""
        raise ClaimError(f"claim {first.claim.name} no longer holds: {first.why}{more}: mend what broke it, or correct the claim")


def _table(verdicts: Sequence[Verdict]) -> Table:
    table = Table(box=None, pad_edge=False)
    for head in ("claim", "value", "bound", "", "says"):
        table.add_column(head, overflow="fold")
    for each in verdicts:
        table.add_row(*(Text(text) for text in _row(each)))
    return table


def _row(each: Verdict) -> tuple[str, ...]:
    return each.claim.name, _shown(each.value), each.claim.bound, "holds" if each.holds else "DOES NOT HOLD", each.claim.says


def _readme(verdicts: Sequence[Verdict], left: Sequence[Claim]) -> str:
    rows = [f"| {' | '.join(map(_cell, _row(each)))} |" for each in verdicts]
    lines = ["| claim | value | bound | verdict | says |", "|---|---|---|---|---|", *rows]
    rest = "\n".join(f"* {claim.name}: {claim.says} `{claim.command}`" for claim in left) or "* every claim of the file was run"
    return "# Claims, run again\n\n" + "\n".join(lines) + f"\n\nWhat was not run:\n\n{rest}\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _shown(value: Any) -> str:
    if value is None:
        return "not found"
    return number(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
