"""The page of predictions is what the simulator says now."""

from __future__ import annotations

from pathlib import Path

from benchmarks.looking_ahead import page

PAGE = Path(__file__).parents[2] / "docs" / "looking_ahead.md"


def test_the_page_is_the_simulators() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "write it again: python -m benchmarks.looking_ahead > docs/looking_ahead.md"
