"""The page cache is filled after a start with what the file tier holds, no further than the plan has room, and ends with the session."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace

import pytest

from strata_recipes.config.schema import Startup
from strata_recipes.engine import page_warmth
from strata_recipes.engine.page_warmth import BLOBS_AHEAD, PageWarmth
from strata_recipes.engine.session import Session
from strata_recipes.engine.watching import Hooks
from strata_recipes.files.residency import cached_bytes, drop_cached
from strata_recipes.pack.reader import Pack
from tests.engine.plans import plan_for

STRIDE = 4096
ORDER = [(0, expert) for expert in range(60)]


class Tiers:
    """Every fifth expert is in a memory. What was asked for comes with the look after the next, unless it is `lost`."""

    index = SimpleNamespace(layers=[SimpleNamespace(stride=STRIDE)], offset=lambda layer, expert: expert * STRIDE)

    def __init__(self, lost: int = -1) -> None:
        self.asked: list[int] = []
        self.most_under_way = 0
        self._lost = lost
        self._looks: dict[int, int] = {}
        self._there: set[int] = set()

    def in_file(self, layer: int, experts: list[int]) -> list[int]:
        return [expert for expert in experts if expert % 5]

    def will_need(self, offset: int, num_bytes: int) -> None:
        assert num_bytes == STRIDE
        self.asked.append(offset // STRIDE)
        self.most_under_way = max(self.most_under_way, len(self.asked) - len(self._there))

    def cached_share(self, offset: int, num_bytes: int) -> float:
        expert = offset // STRIDE
        self._looks[expert] = self._looks.get(expert, 0) + 1
        if self._looks[expert] < 3 or expert == self._lost:
            return 0.0 if self._looks[expert] == 1 else 0.5
        self._there.add(expert)
        return 1.0


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second each time that it is asked what time it is, and no wait between two looks: three looks are well within 5 s."""
    seconds = count()
    monkeypatch.setattr(page_warmth, "time", SimpleNamespace(perf_counter=lambda: float(next(seconds))))
    monkeypatch.setattr(page_warmth, "LOOK_S", 0.0)


def told(tiers: Tiers, blobs: int) -> str:
    said: list[str] = []
    warmth = PageWarmth(tiers, ORDER, blobs * STRIDE + STRIDE // 2, said.append)  # type: ignore[arg-type]
    warmth.wait()
    warmth.close()
    (line,) = said
    return line


@pytest.mark.usefixtures("ticking")
def test_what_no_memory_holds_is_asked_for_in_order_and_a_few_at_once() -> None:
    tiers = Tiers()
    assert told(tiers, 40).startswith("startup.warm: 160.00 KiB of the file tier were read into the page cache in ")
    assert tiers.asked == [expert for _, expert in ORDER if expert % 5][:40]
    assert tiers.most_under_way <= BLOBS_AHEAD + 1


@pytest.mark.usefixtures("ticking")
def test_it_ends_where_the_page_cache_gives_up_what_it_was_given() -> None:
    tiers = Tiers(lost=3)
    assert told(tiers, 48).endswith(", of which some was pushed out again")
    assert len(tiers.asked) == BLOBS_AHEAD + 3  # 3 is the third of those in the file


@pytest.fixture
def cold(tiny: Pack) -> Iterator[Pack]:
    if not drop_cached(tiny.experts_path) or cached_bytes(tiny.experts_path):
        pytest.skip("the page cache of this file system does not let go")
    yield tiny


@pytest.mark.parametrize("warm", [False, True])
def test_a_sessions_file_is_in_the_page_cache(warm: bool, cold: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_warmth, "GIVE_UP_S", 300.0)  # the drive reads on its own time: only a failure waits long
    plan = plan_for(cold, mode="mapped", slots=0, file_io="buffered", startup=Startup(warm=warm))
    assert (plan.startup.warm_bytes >= cold.index.experts_bytes) == warm
    said: list[str] = []
    with Session(plan, cold, hooks=Hooks(log=said.append)) as session:
        while warm and not any("startup.warm" in line for line in said):
            time.sleep(0.01)
        assert session.started.in_file == cold.index.geometry.total_experts
    held = cached_bytes(cold.experts_path)
    assert held is not None and (held >= cold.index.experts_bytes) == warm


def test_closing_ends_it_midway_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_warmth, "GIVE_UP_S", 300.0)
    said: list[str] = []
    warmth = PageWarmth(Tiers(lost=1), ORDER, 1 << 40, said.append)  # type: ignore[arg-type]
    warmth.close()
    warmth.close()
    assert said == [] and not any(thread.name == "page-warmth" for thread in threading.enumerate())
