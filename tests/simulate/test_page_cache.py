"""The window of a least-recently-used cache against one that is walked, expert by expert, with random choices."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata_recipes.simulate.page_cache import PageCache
from strata_recipes.simulate.routing import Routing, chances

EXPERTS, TOP_K, LAYERS = 256, 8, 6
ROUTING = Routing(EXPERTS, TOP_K, 0.45)
ALL = np.ones(EXPERTS)


def walked(capacity: float, tokens: int, passes: int) -> list[float]:
    """Misses a layer of each pass: every expert drawn alone with its chance, the layers in turn through one cache."""
    rng, chance = np.random.default_rng(5), np.array(chances(EXPERTS, TOP_K, 0.45))
    cache: OrderedDict[tuple[int, int], None] = OrderedDict()
    found = []
    for _ in range(passes):
        misses = 0
        for layer in range(LAYERS):
            for expert in np.flatnonzero(rng.random(EXPERTS) < 1 - (1 - chance) ** tokens):
                key = (layer, int(expert))
                if key in cache:
                    cache.move_to_end(key)
                    continue
                misses += 1
                cache[key] = None
                if len(cache) > capacity * LAYERS:
                    cache.popitem(last=False)
        found.append(misses / LAYERS)
    return found


@pytest.mark.parametrize(("share", "tokens"), [(1.0, 64), (0.8, 64), (0.6, 16), (0.5, 4), (0.3, 4), (0.2, 64)])
def test_misses_are_those_of_a_walked_cache(share: float, tokens: int) -> None:
    passes, late = 80, 40
    truth = walked(share * EXPERTS, tokens, passes)
    cache = PageCache(ROUTING, ALL, share * EXPERTS)
    early = sum(cache.reads(i * tokens, tokens).cold for i in range(5))
    assert early == pytest.approx(sum(truth[:5]), rel=0.12)
    steady = cache.reads(late * tokens, tokens, passes - late).cold * (passes - late)
    assert steady == pytest.approx(sum(truth[late:]), rel=0.25, abs=0.02 * EXPERTS)


def test_a_mean_of_passes_is_their_sum() -> None:
    cache = PageCache(ROUTING, ALL, 150.0)
    one_by_one = sum(cache.reads(i * 8, 8).cold for i in range(3, 40))
    assert cache.reads(24, 8, 37).cold * 37 == pytest.approx(one_by_one, rel=0.02)


def test_what_is_cached_at_the_start_is_not_read_again() -> None:
    cold, half, warm = (PageCache(ROUTING, ALL, EXPERTS, share).reads(0, 64).cold for share in (0.0, 0.5, 1.0))
    assert cold == ROUTING.touched(ALL, 64) and half == pytest.approx(cold / 2) and warm == 0.0


@given(st.floats(0, 300), st.floats(0, 50), st.integers(0, 5000), st.integers(1, 600), st.integers(1, 50))
def test_more_cache_never_reads_more(capacity: float, more: float, before: int, tokens: int, passes: int) -> None:
    small, large = (PageCache(ROUTING, ALL, size).reads(before, tokens, passes).cold for size in (capacity, capacity + more))
    assert large <= small + 1e-6 * EXPERTS


def test_a_pass_larger_than_the_cache_finds_nothing_in_it() -> None:
    cache = PageCache(ROUTING, ALL, 0.3 * EXPERTS)
    assert cache.reads(10_000, 512, 4).cached == pytest.approx(0.0, abs=1e-9)
