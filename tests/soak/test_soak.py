"""The short soak: two rounds of all budgets on two models. The long one is `python -m tests.soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata_recipes.pack.reader import open_pack
from tests.faults.conftest import packed
from tests.faults.models import f1, f3
from tests.soak.soak import A_SESSION, BUDGETS, soak

GROWTH = 16 << 20
ROUND = A_SESSION * len(BUDGETS) * 2


def test_the_same_replies_and_nothing_grows(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder: Path = tmp_path_factory.mktemp("soak")
    with open_pack(packed(f1(folder), folder / "1").folder) as one, open_pack(packed(f3(folder), folder / "3").folder) as three:
        found = soak({"f1": one, "f3": three}, requests=2 * ROUND, seconds=float("inf"), warm_requests=ROUND)
    assert found.requests == 2 * ROUND and found.cancelled > 5 and len(found.replies) > 40
    assert found.warm is not None and found.end is not None
    assert found.end.handles == found.warm.handles and found.end.threads == found.warm.threads
    assert found.end.rss_bytes - found.warm.rss_bytes < GROWTH
