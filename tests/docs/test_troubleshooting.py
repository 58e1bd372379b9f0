"""Every last line that the troubleshooting page explains is one that the program can say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^### `(.*)`$", PAGE, re.MULTILINE)
GAP = "…"


def texts(tree: ast.AST) -> Iterator[str]:
    """Every text of a module, with a gap for what is filled in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr | ast.Constant) and (found := text(node)):
            yield found


def text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(text(part) if isinstance(part, ast.Constant) else GAP for part in node.values) if isinstance(node, ast.JoinedStr) else ""


SAID = [found for path in (ROOT / "strata_recipes").rglob("*.py") for found in texts(ast.parse(path.read_text(encoding="utf-8")))]


def can_be_said(heading: str) -> bool:
    parts = [part for part in heading.split(GAP) if part.strip(" ,:;()")]
    pattern = re.compile(".*".join(re.escape(part.strip()) for part in parts), re.DOTALL)
    return any(pattern.search(said) for said in SAID)


def test_there_are_lines_of_every_exit_code() -> None:
    assert len(HEADINGS) > 25 and [int(code) for code in re.findall(r"^## (\d)", PAGE, re.MULTILINE)] == [2, 3, 4, 5]


@pytest.mark.parametrize("heading", HEADINGS)
def test_the_program_says_it(heading: str) -> None:
    assert can_be_said(heading)


def test_a_line_that_nobody_says_is_found() -> None:
    assert not can_be_said("ram is short by … for breakfast: …")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_links_between_pages_hold(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
