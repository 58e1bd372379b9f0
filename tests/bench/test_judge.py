"""What becomes of a run: every way to end badly has its mark, and none of them is counted."""

from __future__ import annotations

from typing import Any

import pytest

from strata_recipes.bench.judge import Left, at, judged
from strata_recipes.bench.order import run_order
from strata_recipes.bench.runs import Mark
from strata_recipes.bench.watchdog import Watchdog

ASKED = {
    "startup": {"strategy": "unbuffered"},
    "prefill": {"order": "auto"},
    "experts": {"mode": "resident", "slots": "auto", "file_io": "auto"},
}
PLAN = {
    "vram_slots": 10, "ram_blobs": 20, "experts": {"mode": "resident", "file_io": "buffered"},
    "startup": {"strategy": "unbuffered"}, "prefill": {"order": "chunked"},
}  # fmt: skip
METRICS = {
    "startup": {"strategy": "unbuffered", "fallback": None}, "prefill": {"order": "chunked"},
    "experts": {"vram_slots": 10, "ram_blobs": 20, "file_blobs": 0},
}  # fmt: skip


def left(**changes: Any) -> Left:
    facts: dict[str, Any] = dict(exit_code=0, last_line="", asked=ASKED, plan=PLAN, metrics=METRICS)
    return Left(**(facts | changes))


def test_a_run_that_did_what_was_asked_is_counted() -> None:
    assert judged(left()) == (Mark.counted, "")


@pytest.mark.parametrize(
    ("changes", "mark", "why"),
    [
        ({"exit_code": 2, "last_line": "kv.max_context=1 is short"}, Mark.refused, "max_context=1"),
        ({"exit_code": 4, "last_line": "out of memory"}, Mark.failed, "out of memory"),
        ({"exit_code": 3}, Mark.failed, "exit code 3 without a word"),
        ({"exit_code": -9}, Mark.killed, "signal 9"),
        ({"exit_code": 130, "stopped": "RAM stayed under"}, Mark.stopped, "RAM stayed under"),
        ({"exit_code": -9, "stopped": "RAM stayed under"}, Mark.stopped, "RAM stayed under"),
        ({"metrics": None}, Mark.failed, "metrics.json"),
        ({"cache": "3 MiB stayed"}, Mark.not_as_cached, "3 MiB stayed"),
    ],
)
def test_a_run_that_ended_badly(changes: dict[str, Any], mark: Mark, why: str) -> None:
    found, said = judged(left(**changes))
    assert found is mark and why in said


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        ({"startup": {"strategy": "mapped", "fallback": "EINVAL"}}, "the start fell back to mapped (EINVAL)"),
        ({"startup": {"strategy": "mapped", "fallback": None}}, "startup.strategy=unbuffered was asked, mapped was done"),
        ({"decode": {"fallback": "not locked"}}, "the reply fell back to single visits (not locked)"),
        ({"experts": {"vram_slots": 10, "ram_blobs": 18}}, "20 ram_blobs were planned, 18 were had"),
        ({"experts": {"vram_slots": 7, "ram_blobs": 20}}, "10 vram_slots were planned, 7 were had"),
    ],
)
def test_a_run_that_fell_back(metrics: dict[str, Any], why: str) -> None:
    assert judged(left(metrics=METRICS | metrics)) == (Mark.fell_back, why)


def test_a_plan_that_does_otherwise_than_asked_is_told() -> None:
    mark, why = judged(left(plan=PLAN | {"experts": {"mode": "budget"}}))
    assert mark is Mark.fell_back and why == "experts.mode=resident was asked, budget was planned"


def test_keys_with_dots_of_their_own_are_found() -> None:
    assert at({"a": {"b.c": {"d": 1}}}, "a.b.c.d") == 1
    assert at({"a": 1}, "a.b") is None and at({}, "a") is None


def test_the_order_alternates_by_pair() -> None:
    assert list(run_order(["a", "b"], 3)) == [(1, "a"), (1, "b"), (2, "b"), (2, "a"), (3, "a"), (3, "b")]
    assert [arm for pair, arm in run_order(["a", "b", "c"], 2) if pair == 2] == ["c", "b", "a"]


def test_the_watchdog_waits_and_forgets() -> None:
    dog = Watchdog(low_bytes=100, after_s=2.0)
    looks = [(0.0, 99), (1.9, 50), (2.0, 100), (2.1, 99), (4.0, 99)]
    assert [dog.seen(*look) for look in looks] == [None] * 5
    why = dog.seen(4.2, 98)
    assert why is not None and "for 2.1 s" in why and "98 B" in why
