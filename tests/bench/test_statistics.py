"""Means, spreads and the bootstrap interval, against the standard library and against every resample there is."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata_recipes.bench.statistics import difference, interval, spread

VALUES = st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=20)


def test_the_spread_of_a_published_column() -> None:
    # ready, 32K, of the start-up report: 40.7 +- 0.9 s (n5)
    found = spread([41.5, 39.4, 40.2, 41.6, 40.8])
    assert found is not None and found.n == 5
    assert (round(found.mean, 1), round(found.std or 0, 1)) == (40.7, 0.9)
    assert (found.lowest, found.highest) == (39.4, 41.6)


@given(VALUES)
def test_mean_and_deviation_are_the_standard_librarys(values: list[float]) -> None:
    found = spread(values)
    assert found is not None and found.std is not None
    assert found.mean == pytest.approx(statistics.mean(values), rel=1e-12, abs=1e-3)
    assert found.std == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-3)


def test_one_value_has_no_spread_and_none_has_nothing() -> None:
    one = spread([3.0])
    assert one is not None and one.std is None and one.mean == 3.0
    assert spread([]) is None and difference([], []) is None


@pytest.mark.parametrize("values", [[1.0, 4.0, 2.0], [-32.0, -33.5, -30.1, -34.0], [0.0, 0.0, 7.0, 1.0, 2.0]])
def test_the_interval_is_that_of_all_resamples(values: list[float]) -> None:
    every = [float(np.mean(drawn)) for drawn in itertools.product(values, repeat=len(values))]
    low, high = interval(values)
    assert low is not None and high is not None
    # a percentile of 10,000 draws may lie one step of the discrete distribution beside the exact one
    for found, share in ((low, 0.025), (high, 0.975)):
        least, most = (float(np.quantile(every, share + step, method="inverted_cdf")) for step in (-0.01, 0.01))
        assert least - 1e-9 <= found <= most + 1e-9


def test_the_interval_covers_the_mean_of_a_normal_variable() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(600):
        low, high = interval(rng.normal(5.0, 2.0, 30).tolist())
        hits += low is not None and high is not None and low <= 5.0 <= high
    assert 0.91 <= hits / 600 <= 0.97  # 95 % nominal; the percentile bootstrap covers 93 % at 30 values


def test_differences_are_pair_by_pair() -> None:
    # the pairs drift by 10 s, each difference is 1 s: the drift is not in the spread
    found = difference([10.0, 20.0, 30.0], [11.0, 21.0, 31.0])
    assert found is not None
    assert (found.n, found.mean, found.std, found.low, found.high) == (3, 1.0, 0.0, 1.0, 1.0)
    assert found.ratio == pytest.approx(63 / 60) and found.certain


def test_an_interval_over_zero_is_not_certain_and_one_pair_has_none() -> None:
    wide = difference([1.0, 5.0, 3.0], [2.0, 3.0, 3.5])
    assert wide is not None and not wide.certain
    one = difference([2.0], [1.0])
    assert one is not None and one.low is None and not one.certain and one.ratio == 0.5
    zero = difference([0.0, 0.0], [1.0, 1.0])
    assert zero is not None and zero.ratio is None
