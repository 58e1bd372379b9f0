"""docs/reliability.md has one row a kind of fault, and the tests that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [line.split(" | ") for line in (ROOT / "docs" / "reliability.md").read_text("utf-8").splitlines() if line.startswith("| R")]


def test_one_row_a_kind_with_an_outcome() -> None:
    assert [row[0] for row in ROWS] == [f"| R{number:02}" for number in range(1, 36)]
    assert all(re.match(r"(held|fixed|not yet)\b", row[2]) for row in ROWS)


def test_every_named_test_is_there() -> None:
    named = [name for row in ROWS for name in re.findall(r"`([\w/]+\.py)::(\w+)`", row[3])]
    assert len(named) >= len(ROWS)
    missing = [f"{file}::{name}" for file, name in named if f"def {name}(" not in (ROOT / "tests" / file).read_text("utf-8")]
    assert not missing
