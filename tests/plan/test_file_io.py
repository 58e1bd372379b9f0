"""Buffered or direct: the public engine's cases, and what is ours: the threshold and the share that Linux asks for."""

from __future__ import annotations

import pytest

from strata_recipes.plan.file_io import cache_keeps, choose_file_io
from strata_recipes.units import GiB

ROOM = 4 * GiB


@pytest.mark.parametrize(
    ("available", "arena", "read", "keeps"),
    [(83, 72, 103.7, False), (83, 71.7, 0, True), (34.1, 0, 22.8, True), (83, 40, 31.7, True), (55, 40, 31.7, False)],
)
def test_the_public_cases(available: float, arena: float, read: float, keeps: bool) -> None:
    assert cache_keeps(int(available * GiB), int(arena * GiB), int(read * GiB), ROOM) is keeps


def chosen(asked: str, os: str, available: float, ram: float, file: float) -> str:
    return choose_file_io(asked, os, int(available * GiB) - ROOM, int(ram * GiB), int(file * GiB), ROOM).value


def test_linux_is_content_with_a_fraction() -> None:
    """27 GiB of RAM, 24 available, a budget of 14: the case whose decode fell from 18.4 to 4.5 tokens/s when reads skipped the cache."""
    assert chosen("auto", "linux", 24, 14, 17.6) == "buffered"
    assert chosen("auto", "linux", 24, 20, 11.6) == "direct"


def test_windows_has_no_direct_reads_yet() -> None:
    assert chosen("auto", "windows", 24, 20, 11.6) == "buffered"


@pytest.mark.parametrize("asked", ["buffered", "direct"])
def test_stated_is_kept(asked: str) -> None:
    assert chosen(asked, "linux", 24, 20, 11.6) == asked


@pytest.mark.parametrize(("os", "share"), [("linux", 0.07), ("windows", 1.0)])
def test_the_threshold_is_where_the_choice_turns(os: str, share: float) -> None:
    file = 1000 * GiB
    choice = choose_file_io("auto", os, 0, 0, file, ROOM)
    assert choice.threshold_bytes == pytest.approx(file * share + ROOM, abs=1)
    assert cache_keeps(choice.threshold_bytes, 0, file, ROOM, share)
    assert not cache_keeps(choice.threshold_bytes - 2, 0, file, ROOM, share)


def test_an_empty_file_tier_is_never_read_directly() -> None:
    assert chosen("auto", "linux", 4, 4, 0) == "buffered"
