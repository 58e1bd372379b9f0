"""The router's skew against what was seen of the real model, and sums that must hold for any."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata_recipes.simulate.routing import Routing, chances, hottest, split

REAL = Routing(512, 10, 0.45)
ALL = np.ones(512)


def test_a_chunk_of_512_tokens_touches_what_was_seen() -> None:
    assert REAL.touched(ALL, 512) / 512 == pytest.approx(0.61, abs=0.03)


@pytest.mark.parametrize(("share", "seen"), [(0.20, 0.77), (0.36, 0.93)])
def test_the_hottest_share_takes_the_choices_that_were_seen(share: float, seen: float) -> None:
    (hot, _) = split(512, (share, 1 - share), ranked=True)
    assert REAL.choices(hot) / 10 == pytest.approx(seen, abs=0.02)


def test_a_super_chunk_touches_what_a_reading_of_the_report_gives() -> None:
    assert REAL.touched(ALL, 4400) / 512 == pytest.approx(0.75, abs=0.03)
    assert REAL.touched(ALL, 12_900) / 512 == pytest.approx(0.82, abs=0.04)


def test_no_skew_is_uniform_and_flatters() -> None:
    uniform = Routing(512, 10, 0.0)
    assert uniform.touched(ALL, 512) / 512 > 0.999
    assert chances(512, 10, 0.0) == pytest.approx([10 / 512] * 512)


@given(st.integers(1, 300), st.data(), st.floats(0, 1.5))
def test_chances_are_falling_and_sum_to_top_k(experts: int, data: st.DataObject, skew: float) -> None:
    top_k = data.draw(st.integers(1, min(experts, 16)))
    found = chances(experts, top_k, skew)
    assert sum(found) == pytest.approx(top_k, rel=1e-6)
    assert list(found) == sorted(found, reverse=True) and 0 <= found[-1] and found[0] <= 1


@given(st.floats(0, 1), st.floats(0, 1), st.booleans())
def test_tiers_hold_every_expert_once(a: float, b: float, ranked: bool) -> None:
    low, high = sorted((a, b))
    tiers = split(48, (low, high - low, 1 - high), ranked)
    assert sum(tiers) == pytest.approx(np.ones(48), abs=1e-9)


def test_the_cache_keeps_the_hottest_of_what_is_held() -> None:
    held = np.array([0.0, 0.5, 1.0, 1.0, 1.0])
    assert hottest(held, 0, 2).tolist() == [0.0, 0.5, 1.0, 0.5, 0.0]
    assert hottest(held, 0, 99).tolist() == held.tolist()
    assert hottest(held, 0, 0).sum() == 0


def test_counts_of_choices_are_chances() -> None:
    """A profile's counts, in any order, give shares times top_k; what no token can do twice goes to the others."""
    even = Routing(8, 2, 0.45, (5.0,) * 8)
    assert even.choices(np.ones(8)) == pytest.approx(2) and even.touched(np.ones(8), 1) == pytest.approx(2)
    steep = Routing(4, 2, 0.45, (1.0, 97.0, 1.0, 1.0))
    assert [steep.choices(np.eye(4)[i]) for i in range(4)] == pytest.approx([1.0, 1 / 3, 1 / 3, 1 / 3])
    rng = np.random.default_rng(3)
    picked = np.bincount(rng.choice(8, 100_000, p=np.arange(1, 9) / 36), minlength=8)
    seen = Routing(8, 1, 0.45, tuple(float(n) for n in picked))
    assert seen.touched(np.ones(8), 3) == pytest.approx(sum(1 - (1 - p / 36) ** 3 for p in range(1, 9)), rel=0.01)
